# SPDX-License-Identifier: Apache-2.0
"""first_hour.py PAGE DIR: run the commands of a page in DIR and compare what
they print. In its indented blocks a line after "$ " is a command, which a
backslash continues; the lines below it are what it prints, in which "..."
stands for any text, and a line of "..." alone for any lines. A command without
such lines may print anything. In TAP."""
import re
import subprocess
import sys
import tempfile


def commands_of(page):
    """(number of the line, command, lines that it prints)"""
    found, goes_on = [], False
    for n, line in enumerate(page, 1):
        if not line.startswith("    "):
            continue
        text = line[4:].rstrip("\n")
        if goes_on:
            found[-1][1] += "\n" + text
        elif text.startswith("$ "):
            found.append([n, text[2:], []])
        else:
            found[-1][2].append(text)
            continue
        goes_on = text.endswith("\\")
    return found


def pattern_of(lines):
    parts = [r"(?:.*\n)*?" if line == "..." else
             ".*".join(map(re.escape, line.split("..."))) + r"\n"
             for line in lines]
    return re.compile("".join(parts))


class Shell:
    """One shell for all commands, as the reader has."""

    def __init__(self, folder):
        self.out = tempfile.TemporaryFile("w+")
        self.shell = subprocess.Popen(
            ["bash"], cwd=folder, stdin=subprocess.PIPE, text=True,
            stdout=subprocess.PIPE, stderr=self.out)

    def run(self, command):
        """(exit status, what it has printed)"""
        self.out.seek(0)
        self.out.truncate()
        self.shell.stdin.write("{ " + command +
                               "\n} </dev/null 1>&2; echo $?\n")
        self.shell.stdin.flush()
        status = self.shell.stdout.readline().strip()
        if not status:
            sys.exit(f"the shell has ended in: {command}")
        self.out.seek(0)
        return status, self.out.read()


def main():
    page, folder = sys.argv[1:]
    with open(page) as f:
        commands = commands_of(f)
    shell, failed = Shell(folder), 0
    for i, (line, command, lines) in enumerate(commands, 1):
        status, printed = shell.run(command)
        good = status == "0" and \
            (not lines or pattern_of(lines).fullmatch(printed))
        failed += not good
        print(f"{'ok' if good else 'not ok'} {i} - line {line}: "
              f"{command.splitlines()[0][:60]}", flush=True)
        if not good:
            print(f"# status {status}; it prints:")
            print("".join("# " + t + "\n" for t in printed.splitlines()),
                  end="")
            print("# the page has:\n# " + "\n# ".join(lines))
    print(f"1..{len(commands)}")
    return failed > 0


sys.exit(main())
