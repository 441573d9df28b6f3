#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of placements in docs/scaling.md: what dp and pp communicate in a
step when nodes stand in Plait's order, in the order that Slurm 26.05 gives
tasks by itself (leaf after leaf, as the topology lists them), and by name
(older releases). Usage: placement.py PLAIT [NODES...] > table.md"""
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PLAIT = sys.argv[1] if len(sys.argv) > 1 else "plait"
SIZES = [int(n) for n in sys.argv[2:]] or [16, 32, 64, 128, 256, 512]
LEAF = 8  # nodes of a leaf switch; 8 leaves to a spine
SEED = 26


def leaves_of(kind, n, rng):
    """Leaves in the order of the topology's file: lists of node numbers."""
    nodes = list(range(1, n + 1))
    if kind == "ordered":
        pass
    elif kind == "shuffled":  # cables do not follow names
        rng.shuffle(nodes)
    elif kind == "uneven":  # what a busy cluster leaves of each leaf
        rng.shuffle(nodes)
        leaves, at = [], 0
        while at < n:
            size = min(rng.randint(1, LEAF), n - at)
            leaves.append(sorted(nodes[at:at + size]))
            at += size
        return leaves
    size = 32 if kind == "rail" else LEAF  # rail: a unit of 32 nodes
    if kind == "rail":  # half of the units lack a node: spares, repairs
        leaves, at = [], 0
        while at < n:
            take = min(size - rng.randint(0, 1), n - at)
            leaves.append(nodes[at:at + take])
            at += take
        return leaves
    return [sorted(nodes[i:i + size]) for i in range(0, n, size)]


def fabric_of(leaves):
    lines, spines = [], []
    for i, leaf in enumerate(leaves):
        lines.append(f"SwitchName=leaf{i} Nodes=" +
                     ",".join(f"n{k:04d}" for k in leaf))
    for s in range(0, len(leaves), 8):
        names = ",".join(f"leaf{i}"
                         for i in range(s, min(s + 8, len(leaves))))
        lines.append(f"SwitchName=spine{s // 8} Switches={names}")
        spines.append(f"spine{s // 8}")
    if len(spines) > 1:
        lines.append("SwitchName=core Switches=" + ",".join(spines))
    return "\n".join(lines) + "\n"


def plan(path, order, pp):
    out = subprocess.run(
        [PLAIT, "plan", "--tp=8", f"--pp={pp}", "--tasks-per-node=8",
         "--gpu-type=h100", "--model", f"{HERE}/70b.yaml", "--fabric", path,
         "--nodes", ",".join(f"n{k:04d}" for k in order), "--json"],
        stdout=subprocess.PIPE, check=True,
        env=dict(os.environ, PLAIT_SITE=""))
    return json.loads(out.stdout)


def seconds(cost):
    return cost["dp_s"] + cost["pp_s"]


def measure(leaves, pp):
    slurm = [k for leaf in leaves for k in leaf]
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(fabric_of(leaves))
        file.flush()
        found = plan(file.name, slurm, pp)
        by_name = plan(file.name, sorted(slurm), pp)
    return (seconds(by_name["linear_cost"]), seconds(found["linear_cost"]),
            seconds(found["cost"]))


def row(kind, n):
    leaves = leaves_of(kind, n, random.Random(f"{SEED} {kind} {n}"))
    text = f"| {kind} | {n} | {len(leaves)} |"
    for pp in (4, 8):
        names, theirs, ours = measure(leaves, pp)
        text += (f" {names:.3f} | {theirs:.3f} | {ours:.3f} | "
                 f"{theirs / ours:.2f} |")
    return text


def main():
    print("| fabric | nodes | leaves | pp 4: by name, s | 26.05, s | Plait, s "
          "| 26.05 / Plait | pp 8: by name, s | 26.05, s | Plait, s | "
          "26.05 / Plait |")
    print("|---" * 11 + "|")
    for kind in ("ordered", "shuffled", "uneven", "rail"):
        for n in SIZES:
            print(row(kind, n), flush=True)


if __name__ == "__main__":
    main()
