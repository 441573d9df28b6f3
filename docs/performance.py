#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/performance.svg from the tables of docs/performance.md: how many
times as fast as PyTorch each job is, for each processor (a heading of the
page). Usage: docs/performance.py"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "examples", "studies"))
from plot import Plot, save  # noqa: E402 (it lies beside the studies)

JOBS = {"GPT-2 124M, 4 x 64": "GPT-2, 64", "GPT-2 124M, 4 x 256": "GPT-2, 256",
        "GPT 6 x 384, 12 x 256": "small GPT", "Llama 160M, 2 x 512": "Llama",
        "8 experts, 6 x 384, 8 x 256": "experts"}
TARGETS = {"fp32": 1.25, "bf16": 1.6}


def rows(path):
    """(processor, job, precision, times PyTorch) of each row."""
    processor, columns = None, []
    for line in open(path):
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if line.startswith("## "):
            processor = line[3:].strip()
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells
        elif cells[0] in JOBS and "precision" in columns:
            yield (processor, cells[0], cells[columns.index("precision")],
                   float(cells[columns.index("over PyTorch")]))


def draw(found, precision):
    p = Plot(f"{precision}: speed beside PyTorch", "job",
             "times PyTorch's tokens/s")
    # those that have both precisions first: one colour each in both plots
    processors = sorted(dict.fromkeys(r[0] for r in found),
                        key=lambda name: -len({r[2] for r in found
                                               if r[0] == name}))
    ends = (-0.5, len(JOBS) - 0.5)
    target = TARGETS[precision]
    p.line("PyTorch", [(x, 1) for x in ends], marks=False)
    p.line(f"target: {target}", [(x, target) for x in ends], dash=True,
           marks=False)
    for i, processor in enumerate(processors):
        of = {r[1]: r[3] for r in found if r[::2] == (processor, precision)}
        points = []
        for at, job in enumerate(JOBS):
            x = at + 0.12 * (i - (len(processors) - 1) / 2)
            points += [(x, of.get(job)), (at + 0.5, None)]
        if of:
            p.line(processor, points)
    p.y.values = [v for v in p.y.values if v is not None] + [0]
    p.x.only = range(len(JOBS))
    p.x.names = dict(enumerate(JOBS.values()))
    return p


found = list(rows(os.path.join(HERE, "performance.md")))
save(os.path.join(HERE, "performance.svg"),
     *(draw(found, precision) for precision in TARGETS))
