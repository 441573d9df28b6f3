# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG, without any package.

    p = Plot("title", "x label", "y label", x_log=2, y_log=10)
    p.line("name", [(x, y), ...], spread=[(low, high), ...], dash=True)
    p.mark("name", x, y, low, high)
    p.bars("name", [(x, y), ...], wide=0.2)
    p.upright(x, "what is there")
    save(path, p)           # or several plots, below one another

A y of None leaves a gap, as does one of 0 on a logarithmic axis;
p.y.values.append(0) makes the axis begin with 0, p.x.only = (2, 4) names its
ticks, p.x.names = {2: "two", 4: "four"} says what stands at them. The legend
stands beside the plot, never on it.
Colours suit light and dark pages; each series has a mark of its own too.
"""
import html
import math

# Okabe and Ito's colours, some of them lighter or darker for their page.
LIGHT = ("#0060a0", "#c04800", "#007a55", "#a0488a", "#8a6d00", "#3a8fc0",
         "#555555", "#b01030")
DARK = ("#58b0f0", "#f08a40", "#30c090", "#e090c8", "#e0c840", "#90d0f8",
        "#b0b0b0", "#ff7088")
LEFT, TOP, WIDTH, HEIGHT = 78, 40, 440, 300
CHAR = 7.8  # at most the mean width of a letter of 13 pixels


def short(value):
    """A number as a person writes it on an axis."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    return f"{value:.6g}"


def log_ticks(low, high, base):
    """Powers of the base; of 10 also 2 and 5 times them, if few."""
    begin = math.floor(math.log(low, base) + 1e-9)
    end = math.ceil(math.log(high, base) - 1e-9)
    steps = (1, 2, 5) if base == 10 and end - begin <= 3 else (1,)
    ticks = [m * float(base) ** e for e in range(begin, end + 1)
             for m in steps]
    ticks = [t for t in ticks if low * 0.999 <= t <= high * 1.001]
    return ticks[::max(1, math.ceil(len(ticks) / 11))]


def linear_ticks(low, high):
    rough = (high - low) / 5
    size = 10 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1, 2, 5, 10) if m * size >= rough)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


class Axis:
    """From values to 0 .. 1."""

    def __init__(self, label, log):
        self.label, self.log = label, log
        self.values = []
        self.low = self.high = None
        self.only = None  # ticks, where not all numbers make sense
        self.names = {}  # what stands at a tick in place of its number

    def has(self, value):
        return value is not None and math.isfinite(value) and \
            (value > 0 or not self.log)

    def fit(self, margin):
        ok = [v for v in self.values if self.has(v)]
        to = (lambda v: math.log(v)) if self.log else (lambda v: v)
        low, high = to(min(ok)), to(max(ok))
        wide = high - low or abs(high) or 1.0
        self.low, self.high = low - margin * wide, high + margin * wide

    def place(self, value):
        value = math.log(value) if self.log else value
        return (value - self.low) / (self.high - self.low)

    def name(self, tick):
        return self.names.get(tick) or short(tick)

    def joins(self, points):
        """Whether a line goes from any of these points to the next."""
        ok = [self.has(y) for _, y in points]
        return any(a and b for a, b in zip(ok, ok[1:]))

    def ticks(self):
        if self.only:
            return self.only
        if not self.log:
            return linear_ticks(self.low, self.high)
        low, high = math.exp(self.low), math.exp(self.high)
        ticks = log_ticks(low, high, self.log)
        return ticks if len(ticks) > 1 else linear_ticks(low, high)


class Plot:
    def __init__(self, title, x_label, y_label, x_log=0, y_log=0):
        self.title = title
        self.x, self.y = Axis(x_label, x_log), Axis(y_label, y_log)
        self.series, self.uprights = [], []
        self.wide = {}  # of a series that is bars, by its name: their width

    def line(self, name, points, spread=None, dash=False, marks=True):
        """spread: a (low, high) for each point."""
        spread = spread or [(y, y) for _, y in points]
        self.x.values += [x for x, _ in points]
        self.y.values += [v for pair in spread for v in pair]
        self.series.append((name, list(points), spread, dash, marks))

    def mark(self, name, x, y, low=None, high=None):
        pair = (y if low is None else low, y if high is None else high)
        self.line(name, [(x, y)], [pair])

    def bars(self, name, points, wide):
        """From 0 to y; the width is in units of x."""
        self.wide[name] = wide
        self.line(name, [(x, y) for x, y in points if y is not None],
                  marks=False)
        self.x.values += [x + side * wide / 2 for x, _ in points
                          for side in (-1, 1)]
        self.y.values.append(0)

    def upright(self, x, text):
        self.x.values.append(x)
        self.uprights.append((x, text))

    def at(self, x, y):
        return (LEFT + WIDTH * self.x.place(x),
                TOP + HEIGHT * (1 - self.y.place(y)))

    def size(self):
        names = [s[0] for s in self.series] + [u[1] for u in self.uprights]
        return (LEFT + WIDTH + 60 +
                math.ceil(CHAR * max(map(len, names), default=0)),
                TOP + HEIGHT + 62)

    def draw(self):
        self.x.fit(0.04)
        self.y.fit(0.06)
        if self.wide:
            self.y.low = 0
        out = [f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">'
               f'{html.escape(self.title)}</text>']
        out += self.axes() + self.draw_uprights()
        for i, one in enumerate(self.series):
            out += self.draw_series(i, *one)
        return out + self.legend()

    def axes(self):
        bottom = TOP + HEIGHT
        out = []
        for tick in self.x.ticks():
            x = LEFT + WIDTH * self.x.place(tick)
            out += [f'<path class="g" d="M{x:.1f} {TOP}V{bottom}"/>',
                    text(x, bottom + 19, self.x.name(tick), "middle")]
        for tick in self.y.ticks():
            y = TOP + HEIGHT * (1 - self.y.place(tick))
            out += [f'<path class="g" d="M{LEFT} {y:.1f}h{WIDTH}"/>',
                    text(LEFT - 8, y + 4.5, self.y.name(tick), "end")]
        out += [f'<path class="a" d="M{LEFT} {TOP}V{bottom}h{WIDTH}"/>',
                text(LEFT + WIDTH / 2, bottom + 46, self.x.label, "middle"),
                text(0, 0, self.y.label, "middle",
                     f'translate(20 {TOP + HEIGHT / 2}) rotate(-90)')]
        return out

    def draw_uprights(self):
        return [f'<path class="u u{i}" d="M'
                f'{LEFT + WIDTH * self.x.place(value):.1f} {TOP}v{HEIGHT}"/>'
                for i, (value, _) in enumerate(self.uprights)]

    def draw_bars(self, i, points, wide):
        shown = []
        for x, y in points:
            left, top = self.at(x - wide / 2, y)
            right, bottom = self.at(x + wide / 2, 0)
            shown += [f'<path class="f{i % 8}" d="M{left:.1f} {bottom:.1f}'
                      f'V{top:.1f}H{right:.1f}V{bottom:.1f}z"/>']
            if right - left > 24:  # room for its number
                shown.append(text((left + right) / 2, top - 4, f"{y:.2f}",
                                  "middle"))
        return shown

    def draw_series(self, i, name, points, spread, dash, marks):
        if name in self.wide:
            return self.draw_bars(i, points, self.wide[name])
        shown, runs = [], [[]]
        for (x, y), pair in zip(points, spread):
            if not self.y.has(y):
                runs.append([])
                continue
            px, py = self.at(x, y)
            runs[-1].append(f"{px:.1f} {py:.1f}")
            if pair[0] != pair[1] and all(map(self.y.has, pair)):
                low, high = self.at(x, pair[0])[1], self.at(x, pair[1])[1]
                shown.append(f'<path class="l c{i % 8}" d="M{px:.1f} '
                             f'{low:.1f}V{high:.1f}"/>')
            if marks:
                shown.append(mark(i, px, py))
        style = ' stroke-dasharray="6 4"' if dash else ""
        lines = [f'<path class="l c{i % 8}"{style} d="M{"L".join(run)}"/>'
                 for run in runs if len(run) > 1]
        return lines + shown

    def legend(self):
        out, x = [], LEFT + WIDTH + 18
        for i, (name, points, _, dash, marks) in enumerate(self.series):
            y = TOP + 14 + 22 * i
            style = ' stroke-dasharray="6 4"' if dash else ""
            if name in self.wide:
                out.append(f'<path class="f{i % 8}" d="M{x + 4} {y - 6}'
                           'h16v12h-16z"/>')
            elif self.y.joins(points):
                out.append(f'<path class="l c{i % 8}"{style} '
                           f'd="M{x} {y}h24"/>')
            if marks:
                out.append(mark(i, x + 12, y))
            out.append(text(x + 31, y + 4.5, name, "start"))
        for i, (_, what) in enumerate(self.uprights):
            y = TOP + 14 + 22 * (len(self.series) + i)
            out += [f'<path class="u u{i}" d="M{x + 12} {y - 9}v18"/>',
                    text(x + 31, y + 4.5, what, "start")]
        return out


def text(x, y, what, anchor, transform=None):
    turn = f' transform="{transform}"' if transform else ""
    place = "" if transform else f' x="{x:.1f}" y="{y:.1f}"'
    return f'<text{place} text-anchor="{anchor}"{turn}>' \
           f'{html.escape(what)}</text>'


def mark(i, x, y):
    """A circle, square, triangle or diamond."""
    shapes = (f"M{x - 4.5:.1f} {y:.1f}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
              f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
              f"M{x:.1f} {y - 5.5:.1f}l5 9h-10z",
              f"M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z")
    return f'<path class="f{i % 8}" d="{shapes[i % 4]}"/>'


def save(path, *plots):
    """path: of a file, or a file that is open for text."""
    sizes = [plot.size() for plot in plots]
    out = [head(max(wide for wide, _ in sizes), sum(h for _, h in sizes))]
    top = 0
    for plot, (_, high) in zip(plots, sizes):
        out += [f'<g transform="translate(0 {top})">', *plot.draw(), "</g>"]
        top += high
    svg = "\n".join(out) + "\n</svg>\n"
    if hasattr(path, "write"):
        path.write(svg)
        return
    with open(path, "w", encoding="utf-8") as f:
        f.write(svg)


def head(wide, high):
    def colours(page, ink, grid, palette):
        # The page around letters keeps lines off them.
        parts = [f".p{{fill:{page}}}text{{fill:{ink};stroke:{page}}}",
                 f".a,.u{{stroke:{ink}}}.g{{stroke:{grid}}}"]
        parts += [f".c{i}{{stroke:{c}}}.f{i}{{fill:{c}}}"
                  for i, c in enumerate(palette)]
        return "".join(parts)

    light = colours("#ffffff", "#222222", "#e4e4e4", LIGHT)
    dark = colours("#0d1117", "#e0e0e0", "#2c333c", DARK)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} '
            f'{high}" width="{wide}" height="{high}" '
            'font-family="sans-serif" font-size="13">\n<style>'
            '.a,.g,.u,.l{fill:none}.l{stroke-width:2}'
            'text{paint-order:stroke;stroke-width:3;stroke-linejoin:round}'
            '.u{stroke-width:1.5}.u0{stroke-dasharray:3 3}'
            f'.u1{{stroke-dasharray:9 3 2 3}}{light}\n'
            f'@media (prefers-color-scheme:dark){{{dark}}}</style>\n'
            f'<rect class="p" width="{wide}" height="{high}"/>')
