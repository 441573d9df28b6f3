#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints functions with many parameters: parameters.py TREE [MOST]

Each line is "FILE:LINE NAME COUNT", for functions with a body and for members
that point to functions, with more than MOST parameters (6). It knows no
grammar: comments, strings and preprocessor lines are blanked, and what is
called neither `if` nor the like and is followed by a body is a function."""
import pathlib
import re
import sys

NO_FUNCTION = {'if', 'for', 'while', 'switch', 'return', 'sizeof', 'catch',
               'defined', 'alignas', '__attribute__', '__launch_bounds__',
               '__align__', 'decltype'}
SUFFIXES = {'.c', '.h', '.cc', '.cu', '.cuh'}


def blank(text):
    """The text without what is no code, with as many lines."""
    def lines(found):
        return '\n' * found[0].count('\n')

    text = re.sub(r'/\*.*?\*/|//[^\n]*', lines, text, flags=re.S)
    text = re.sub(r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', lines, text, flags=re.M)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', '""', text)


def end_of(text, at):
    """Where the parenthesis that opens at `at` is closed; -1: nowhere."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == '(') - (text[i] == ')')
        if depth == 0:
            return i
    return -1


def count(parameters):
    """How many there are in what stands between the parentheses."""
    depth = commas = 0
    for c in parameters:
        depth += (c in '(<[{') - (c in ')>]}')
        commas += c == ',' and depth == 0
    return 0 if parameters.strip() in ('', 'void') else commas + 1


def functions(text):
    """(name, parameters, line) of each function and pointer to one."""
    for found in re.finditer(r'(?<=[\w*&>\s])([A-Za-z_]\w*)\s*\(', text):
        name, begin = found[1], found.end() - 1
        end = end_of(text, begin)
        if name == 'CPU_NAME' and text[end + 1:end + 2] == '(':
            name, begin = text[begin + 1:end], end + 1
            end = end_of(text, begin)
        if end > 0 and name not in NO_FUNCTION and re.match(
                r'\s*(const\s*)?(noexcept\s*)?\{', text[end + 1:end + 99]):
            yield name, text[begin + 1:end], text.count('\n', 0, begin) + 1
    for found in re.finditer(r'\(\s*\*\s*(?:const\s*)?(\w+)\s*\)\s*\(', text):
        begin = found.end() - 1
        end = end_of(text, begin)
        yield found[1], text[begin + 1:end], text.count('\n', 0, begin) + 1


tree = pathlib.Path(sys.argv[1])
most = int(sys.argv[2]) if len(sys.argv) > 2 else 6
for folder in 'topology', 'spank_plugin', 'kernels', 'runtime':
    for path in sorted((tree / folder).rglob('*')):
        if path.suffix in SUFFIXES:
            for name, parameters, line in functions(blank(path.read_text())):
                n = count(parameters)
                if n > most:
                    print(f'{path.relative_to(tree)}:{line} {name} {n}')
