#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rewrite a CUDA source as C++ for emulated.h: launches, shared memory, launch
bounds and PTX become calls. Line numbers stay the same.

    rewrite.py SOURCE OUTPUT
"""
import re
import sys

PAIRS = {'(': ')', '[': ']', '{': '}'}


def fail(what):
    sys.exit('rewrite.py: %s: %s' % (sys.argv[1], what))


def strings_end(text, at):
    """The position after the string literal that begins at `at`."""
    at += 1
    while text[at] != '"':
        at += 2 if text[at] == '\\' else 1
    return at + 1


def closing(text, at):
    """The position of the bracket that closes the one at `at`."""
    stack = []
    while at < len(text):
        c = text[at]
        if c == '"':
            at = strings_end(text, at)
            continue
        if c in PAIRS:
            stack.append(PAIRS[c])
        elif c in ')]}':
            if c != stack.pop():
                fail('brackets do not match')
            if not stack:
                return at
        at += 1
    fail('an open bracket')


def split(text, separator=','):
    """The parts between separators that are outside of all brackets but < and
    >."""
    parts, start, at = [], 0, 0
    while at < len(text):
        c = text[at]
        if c == '"':
            at = strings_end(text, at)
            continue
        if c in PAIRS:
            at = closing(text, at)
        elif c == separator:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return parts + [text[start:]]


def lines_of(text):
    return '\n' * text.count('\n')


def one_line(text):
    return ' '.join(text.split())


def without_comments(text):
    """Blank out comments, as brackets in them need not match."""
    pattern = re.compile(r'"(?:\\.|[^"\\])*"|/\*.*?\*/|//[^\n]*', re.S)
    return pattern.sub(
        lambda m: m[0] if m[0][0] == '"' else ' ' + lines_of(m[0]), text)


def shared_memory(text):
    def dynamic(m):
        return '%s *%s = (%s *)emu_dynamic_shared(%s);%s' % (
            m['type'], m['name'], m['type'], m['align'] or
            'alignof(%s)' % m['type'], lines_of(m[0]))

    def static(m):
        kind, name = m['type'].strip(), m['name']
        return (
            'typedef %s %s_shape%s; static const char %s_key = 0; '
            '%s_shape &%s = *(%s_shape *)emu_static_shared(&%s_key, '
            'sizeof(%s_shape), %s);%s' %
            (kind, name, m['dims'], name, name, name, name, name, name,
             m['align'] or m['align2'] or 'alignof(%s)' % kind,
             lines_of(m[0])))

    text = re.sub(
        r'extern\s+__shared__\s+(?:__align__\((?P<align>\w+)\)\s+)?'
        r'(?P<type>[\w ]+?)\s+(?P<name>\w+)\[\];', dynamic, text)
    return re.sub(
        r'(?:alignas\((?P<align>\w+)\)\s+)?__shared__\s+'
        r'(?:__align__\((?P<align2>\w+)\)\s+)?'
        r'(?P<type>[\w<> ]+?)\s+(?P<name>\w+)(?P<dims>(?:\[[^\]]*\])*);',
        static, text)


def launch_bounds(text):
    """Replace __launch_bounds__ by a check in the kernel's first line."""
    while True:
        at = text.find('__launch_bounds__')
        if at < 0:
            return text
        end = closing(text, text.index('(', at))
        bounds = split(text[text.index('(', at) + 1:end])[0]
        params = closing(text, text.index('(', end))
        body = text.index('{', params)
        text = (text[:at] + lines_of(text[at:end + 1]) +
                text[end + 1:body + 1] +
                ' emu_launch_bounds(%s);' % one_line(bounds) +
                text[body + 1:])


def callee_start(text, at):
    """The start of the callee's name, which ends before `at`."""
    while text[at - 1].isspace():
        at -= 1
    if text[at - 1] == '>':
        depth = 0
        while True:
            at -= 1
            depth += {'>': 1, '<': -1}.get(text[at], 0)
            if depth == 0:
                break
    while text[at - 1].isalnum() or text[at - 1] == '_':
        at -= 1
    return at


def launches(text, kernels):
    while True:
        at = text.find('<<<')
        if at < 0:
            return text
        start, close = callee_start(text, at), text.index('>>>', at)
        callee = one_line(text[start:at])
        shape = [one_line(s) for s in split(text[at + 3:close])]
        shape += ['0', '0'][:4 - len(shape)]
        end = closing(text, text.index('(', close))
        args = text[text.index('(', close) + 1:end]
        # A template whose arguments are deduced from the call has no address.
        if callee in kernels:
            kernel = '[](auto... a) { %s(a...); }' % callee
        else:
            kernel = callee
        key = 'nullptr' if shape[2] == '0' else '(const void *)(%s)' % callee
        name = callee if callee in kernels or '<' in callee else '%s of %s' % (
            callee, kernels[-1] if len(kernels) == 1 else 'this file')
        text = (text[:start] + 'emu::launch("%s", %s, %s, %s, %s, %s, %s, ' %
                (name, key, shape[0], shape[1], shape[2], shape[3], kernel) +
                lines_of(text[start:close]) + args + text[end:])


def assembly(text):
    pattern = re.compile(r'asm\s+volatile\s*\(')
    while True:
        m = pattern.search(text)
        if not m:
            return text
        end = closing(text, m.end() - 1)
        parts = split(text[m.end():end].replace('::', ': :'), ':')
        code = ''.join(re.findall(r'"((?:\\.|[^"\\])*)"', parts[0]))
        operands = [[], []]
        for i in (1, 2):
            for operand in split(parts[i]) if i < len(parts) else []:
                if operand.strip():
                    operands[i - 1].append(
                        one_line(operand[operand.index('('):]))
        call = ('{ void *emu_out[] = {%s}; uint64_t emu_in[] = {%s}; '
                'emu_ptx("%s", emu_out, emu_in, __LINE__); }' %
                (', '.join(['&%s' % o for o in operands[0]] + ['nullptr']),
                 ', '.join(['emu::operand%s' % o for o in operands[1]] +
                           ['0']), code))
        text = (text[:m.start()] + call + lines_of(text[m.start():end]) +
                text[end + 1:])


def main():
    with open(sys.argv[1]) as f:
        text = without_comments(f.read())
    text = re.sub(r'#pragma unroll[^\n]*', '', text)
    text = launch_bounds(text)
    kernels = re.findall(r'__global__[\w\s]*?(\w+)\(', text)
    text = assembly(shared_memory(text))
    text = launches(text, kernels)
    with open(sys.argv[2], 'w') as f:
        f.write('#line 1 "%s"\n%s' % (sys.argv[1], text))


main()
