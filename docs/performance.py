#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures of docs/performance.md from docs/performance.json: the tables
between its lines "<!-- table: PROCESSOR -->" and "<!-- end -->", and the bars
of docs/performance.svg.

    docs/performance.py                          write tables and plot again
    docs/performance.py BENCH.json PROCESSOR     take what `make bench` measured
                                                 on a processor of that class
    docs/performance.py --check                  exit status 1 if the page or
                                                 the plot is not up to date

A run of `make bench` replaces the figures of the same processor, job and
precision. A processor that the page lacks gets a heading of its own."""
import io
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "examples", "studies"))
from plot import Plot, save  # noqa: E402 (it lies beside the studies)

RECORDS, PAGE, PLOT = (os.path.join(HERE, "performance." + end)
                       for end in ("json", "md", "svg"))
JOBS = {"GPT-2 124M, 4 x 64": "GPT-2, 64", "GPT-2 124M, 4 x 256": "GPT-2, 256",
        "GPT 6 x 384, 12 x 256": "small GPT", "Llama 160M, 2 x 512": "Llama",
        "8 experts, 6 x 384, 8 x 256": "experts"}
TARGETS = {"fp32": 1.25, "bf16": 1.6}
COMMON = ("GPT-2 124M, 4 x 64", "fp32")  # the job that llm.c is timed at
BEFORE_TABLES = "## NVIDIA H200"  # new processors stand above it

# Of a record: its key, the column's heading, and how a value is written. A
# column of which a processor has no value is left out.
COLUMNS = (("job", "job", "{}"), ("precision", "precision", "{}"),
           ("tokens_per_s", "plait, tokens/s", "{:.0f}"),
           ("over_torch", "over PyTorch", "{:.2f}"),
           ("memory", "memory over PyTorch's", "{:.2f}"),
           ("over_llmc", "over llm.c", "{:.2f}"),
           ("over_library", "step over its products by oneDNN", "{:.2f}"),
           ("over_products", "by plait", "{:.2f}"),
           ("spread", "spread", "{:.0%}"),
           ("spread_torch", "spread of PyTorch", "{:.0%}"),
           ("rounds", "rounds", "{}"), ("date", "date", "{}"),
           ("commit", "commit", "{}"))


# -- records ------------------------------------------------------------------

def load():
    with open(RECORDS, encoding="utf-8") as f:
        return json.load(f)


def store(records):
    with open(RECORDS, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in records) + "\n]\n")


def key(record):
    return record["processor"], record["job"], record["precision"]


def ratio(a, b):
    return round(a / b, 2) if a and b else None


def spread(row):
    return round((row["most"] - row["least"]) / row["seconds"], 2)


def measured(bench, processor):
    """A record of each job that `make bench` has finished."""
    jobs = {}
    for row in bench.get("steps", []):
        if row.get("seconds"):
            who = row["who"].split(",")[0]
            jobs.setdefault((row["case"], row["precision"]), {})[who] = row
    for (job, precision), by in jobs.items():
        mine, torch = by.get("plait"), by.get("PyTorch")
        if not mine or not torch:
            continue
        other = {who: ratio(by.get(who, {}).get("seconds"), mine["seconds"])
                 for who in by}
        record = {
            "processor": processor, "job": job, "precision": precision,
            "tokens_per_s": round(mine["tokens_per_s"]),
            "over_torch": other["PyTorch"],
            "memory": ratio(mine["peak_mib"], torch["peak_mib"]),
            "over_llmc": other.get("llm.c"),
            "over_library": ratio(mine["seconds"], by.get(
                "the library's matrix products", {}).get("seconds")),
            "over_products": ratio(mine["seconds"], by.get(
                "its matrix products", {}).get("seconds")),
            "spread": spread(mine), "spread_torch": spread(torch),
            "rounds": min(mine["rounds"], torch["rounds"]),
            "date": mine["date"], "commit": mine["commit"],
            "model": bench["processor"], "isa": bench["cpu_isa"]}
        yield {k: v for k, v in record.items() if v is not None}


def take(records, new):
    """The records with the new ones in the places of those they replace."""
    places = {key(r): i for i, r in enumerate(records)}
    for record in new:
        if key(record) in places:
            records[places[key(record)]] = record
        else:
            records.append(record)
    return records


# -- the page -----------------------------------------------------------------

def table(records):
    columns = [c for c in COLUMNS if any(c[0] in r for r in records)]
    lines = ["| " + " | ".join(heading for _, heading, _ in columns) + " |",
             "|" + "---|" * len(columns)]
    for r in records:
        lines.append("| " + " | ".join(
            form.format(r[name]).replace("%", " %") if name in r else ""
            for name, _, form in columns) + " |")
    return lines


def page(text, records):
    by = {}
    for r in records:
        by.setdefault(r["processor"], []).append(r)
    for processor, its in by.items():
        begin = f"<!-- table: {processor} -->"
        if begin not in text:
            text = text.replace(
                BEFORE_TABLES, f"## {processor}\n\nTwo shared cores of an "
                f"{its[0]['model']}.\n\n{begin}\n<!-- end -->\n\n"
                + BEFORE_TABLES)
        before, after = text.split(begin + "\n")
        rest = after[after.index("<!-- end -->"):]
        text = before + "\n".join([begin, "", *table(its), "", rest])
    return text


# -- the plot -----------------------------------------------------------------

def draw_programs(found):
    """The job that all three programs train, on each processor."""
    p = Plot(f"{COMMON[0]}, {COMMON[1]}: three programs", "processor",
             "times PyTorch's tokens/s")
    of = {r["processor"]: r for r in found
          if (r["job"], r["precision"]) == COMMON}
    plait = [r["over_torch"] for r in of.values()]
    llmc = [ratio(r["over_torch"], r.get("over_llmc")) for r in of.values()]
    for i, (name, values) in enumerate((
            ("PyTorch", [1] * len(of)), ("Plait", plait), ("llm.c", llmc))):
        p.bars(name, [(at + 0.27 * (i - 1), y)
                      for at, y in enumerate(values)], 0.25)
    p.x.only = range(len(of))
    p.x.names = dict(enumerate(of))
    return p


def draw(found, precision):
    p = Plot(f"{precision}: speed beside PyTorch", "job",
             "times PyTorch's tokens/s")
    # those that have both precisions first: one colour each in both plots
    processors = sorted(dict.fromkeys(r["processor"] for r in found),
                        key=lambda name: -len({r["precision"] for r in found
                                               if r["processor"] == name}))
    wide = 0.8 / len(processors)
    for i, processor in enumerate(processors):
        of = {r["job"]: r["over_torch"] for r in found
              if r["processor"] == processor and r["precision"] == precision}
        if of:
            p.bars(processor, [
                (at + wide * (i - (len(processors) - 1) / 2), of.get(job))
                for at, job in enumerate(JOBS)], 0.9 * wide)
    ends = (-0.5, len(JOBS) - 0.5)
    target = TARGETS[precision]
    p.line("PyTorch", [(x, 1) for x in ends], marks=False)
    p.line(f"target: {target}", [(x, target) for x in ends], dash=True,
           marks=False)
    p.x.only = range(len(JOBS))
    p.x.names = dict(enumerate(JOBS.values()))
    return p


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def main(args):
    records, check = load(), args == ["--check"]
    if args and not check:
        if len(args) != 2:
            sys.exit(__doc__)
        with open(args[0], encoding="utf-8") as f:
            new = list(measured(json.load(f), args[1]))
        if not new:
            sys.exit(f"performance.py: {args[0]} has no job that Plait and "
                     "PyTorch both finished")
        records = take(records, new)
    found = [r for r in records if r["job"] in JOBS]
    text, now = page(read(PAGE), records), io.StringIO()
    save(now, draw_programs(found),
         *(draw(found, precision) for precision in TARGETS))
    if check:
        sys.exit(text != read(PAGE) or now.getvalue() != read(PLOT))
    store(records)
    for path, what in ((PAGE, text), (PLOT, now.getvalue())):
        with open(path, "w", encoding="utf-8") as f:
            f.write(what)


main(sys.argv[1:])
