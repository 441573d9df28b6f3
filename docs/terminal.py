#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what a terminal showed: text from standard input becomes an SVG on
standard output. Lines that begin with "$ " are what was typed.

    ./quickstart | tee log
    sed -n '/^\\$ srun/,/^step 150/p' log | docs/terminal.py >docs/terminal.svg
"""
import sys
import unicodedata
from xml.sax.saxutils import escape

LINE, COLUMN, EDGE, BAR = 18, 7.83, 16, 28
STYLE = """text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;\
font-size:13px;fill:#d7dee6;white-space:pre}\
.page{fill:#16202b}.bar{fill:#263442}.dot{fill:#5b6b7b}\
.typed{fill:#fff;font-weight:bold}.prompt{fill:#7fd6a2}"""


def columns(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1
               for c in line)


def draw(lines):
    width = max(map(columns, lines), default=0) * COLUMN + 2 * EDGE
    height = BAR + EDGE + len(lines) * LINE + EDGE / 2
    size = f'width="{width:.0f}" height="{height:.0f}"'
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
           f'viewBox="0 0 {width:.0f} {height:.0f}">')
    yield f"<style>{STYLE}</style>"
    yield '<rect width="100%" height="100%" rx="8" class="page"/>'
    yield (f'<path d="M0 {BAR}V8a8 8 0 0 1 8-8H{width - 8:.0f}'
           f'a8 8 0 0 1 8 8V{BAR}z" class="bar"/>')
    for i in range(3):
        yield (f'<circle cx="{EDGE + 18 * i}" cy="{BAR / 2:.0f}" r="5" '
               'class="dot"/>')
    for i, line in enumerate(lines):
        if not line:
            continue
        y = BAR + EDGE + LINE * i + 10
        # The same width whatever font there is: columns stay columns.
        fit = (f'textLength="{columns(line) * COLUMN:.1f}" '
               'lengthAdjust="spacingAndGlyphs"')
        text = escape(line)
        kind = ""
        if line.startswith("$ "):
            kind = ' class="typed"'
            text = f'<tspan class="prompt">$</tspan>{text[1:]}'
        yield f'<text x="{EDGE}" y="{y}" {fit}{kind} xml:space="preserve">' \
              f'{text}</text>'
    yield "</svg>"


def main():
    lines = [line.rstrip().expandtabs() for line in sys.stdin]
    if not lines:
        sys.exit("terminal.py: nothing to draw on standard input")
    print("\n".join(draw(lines)))


main()
