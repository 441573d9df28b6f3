#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Local, post-local SGD and DiLoCo against a small and a huge batch: the
validation loss after the same text, and the bytes that it took.

    local_sgd.py [--quick] [--train PROGRAM] [--prep PROGRAM] [--out DIR]

Four processes train a small GPT-2 on the King James Bible (Debian's package
bible-kjv), three seeds each. Lin et al. (arXiv 1808.07217) compare local SGD
with the huge batch that communicates as seldom. Writes local_sgd.svg and
prints a table; --quick: a few steps, to see that it runs.
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

RANKS = 4
BATCH = 16  # sequences of a small batch, over all ranks
H = 8       # steps from one meeting to the next
STEPS = 800
SEEDS = (1, 2, 3)

MODEL = """
model: {family: gpt2, layers: 2, hidden: 64, heads: 4, vocab: 257, seq_len: 64}
data: {train: DIR/train.bin, val: DIR/val.bin}
train: {micro_batch: 4, eval_steps: 20}
optim: {clip: 1.0, weight_decay: 0.1}
lr: {schedule: cosine, min: 0.1}
"""


def methods(steps):
    """Name: (steps, sequences per step, learning rate, sync). Each sees the
    same number of sequences; the rate of the huge batch follows the square
    root of its size."""
    small, rate = (steps, BATCH, 3e-3), 3e-3 * math.sqrt(H)
    return {
        "small batch": (*small, "mode=each"),
        "huge batch": (steps // H, BATCH * H, rate, "mode=each"),
        "local SGD": (*small, f"mode=local steps={H}"),
        "post-local SGD":
            (*small, f"mode=post-local steps={H} from={steps // 2}"),
        "DiLoCo": (*small, f"mode=diloco steps={4 * H} lr=0.7 momentum=0.6"),
    }


def read_text():
    """The Bible, or None."""
    if not shutil.which("bible"):
        return None
    return subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], check=True,
                          stdout=subprocess.PIPE).stdout


def prepare(args, text, work):
    cut = len(text) * 9 // 10
    for name, part in (("train", text[:cut]), ("val", text[cut:])):
        path = os.path.join(work, name)
        with open(path, "wb") as f:
            f.write(part)
        subprocess.run([args.prep, path, "--out", path + ".d"], check=True,
                       stdout=subprocess.DEVNULL)
        os.rename(path + ".d/train.bin", path + ".bin")
    with open(os.path.join(work, "c.yaml"), "w") as f:
        f.write(MODEL.replace("DIR", work))


def train(args, work, method, seed):
    """The last validation loss, and the bytes that rank 0 sent per axis."""
    steps, batch, rate, sync = method
    metrics = os.path.join(work, "metrics")
    settings = [f"train.steps={steps}", f"train.global_batch={batch}",
                f"train.seed={seed}", f"train.eval_every={steps}",
                f"optim.lr={rate}", f"lr.warmup={steps // 20}",
                f"parallel.dp={RANKS}"]
    settings += ["sync." + item for item in sync.split()]
    open(metrics, "w").close()
    # More processes than there may be cores.
    env = dict(os.environ, OMP_NUM_THREADS="1",
               OMPI_MCA_rmaps_base_oversubscribe="1",
               OMPI_MCA_mpi_yield_when_idle="1",
               OMPI_MCA_hwloc_base_binding_policy="none")
    run = subprocess.run(
        ["mpirun", "-n", str(RANKS), args.train,
         os.path.join(work, "c.yaml"), "--device", "cpu", "--metrics", metrics]
        + [w for s in settings for w in ("--set", s)],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, universal_newlines=True, timeout=300)
    if run.returncode:
        sys.exit(run.stdout)
    with open(metrics) as f:
        lines = [json.loads(line) for line in f]
    sent = sum(n for line in lines for n in line["comm_bytes"].values())
    return lines[-1]["val_loss"], sent


def collect(args, work, steps, seeds):
    """[(name, losses by seed, bytes)]"""
    rows = []
    for name, method in methods(steps).items():
        out = [train(args, work, method, seed) for seed in seeds]
        rows.append((name, [loss for loss, _ in out], out[0][1]))
        mean = sum(rows[-1][1]) / len(seeds)
        print(f"# {name}: {mean:.4f}, {out[0][1]} bytes", flush=True)
    return rows


def print_table(rows):
    print("| method | validation loss | least, most | MB sent by a rank | of "
          "the small batch's |\n|---|---|---|---|---|")
    for name, losses, sent in rows:
        print(f"| {name} | {sum(losses) / len(losses):.4f} | "
              f"{min(losses):.4f}, {max(losses):.4f} | {sent / 1e6:.1f} | "
              f"{sent / rows[0][2]:.4f} |")


def draw(rows, path):
    """Loss over bytes, a mark for the mean and a line from least to most."""
    left, top, width, height = 80, 20, 520, 300
    low = min(min(r[1]) for r in rows)
    high = max(max(r[1]) for r in rows)
    low, high = low - 0.2 * (high - low), high + 0.2 * (high - low)
    begin = math.floor(math.log10(min(r[2] for r in rows)))
    end = math.ceil(math.log10(max(r[2] for r in rows)))
    end = max(end, begin + 1)

    def x_of(sent):
        return left + width * (math.log10(sent) - begin) / (end - begin)

    def y_of(loss):
        return top + height * (high - loss) / (high - low)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="640" height="390" '
           'font-family="sans-serif" font-size="14">',
           '<rect width="640" height="390" fill="white"/>',
           f'<path d="M{left} {top}v{height}h{width}" fill="none" '
           'stroke="black"/>',
           f'<text x="{left + width / 2}" y="378" text-anchor="middle">bytes '
           'sent by a rank</text>',
           f'<text x="20" y="{top + height / 2}" text-anchor="middle" '
           f'transform="rotate(-90 20 {top + height / 2})">validation loss'
           '</text>']
    for e in range(begin, end + 1):
        x = x_of(10 ** e)
        out.append(f'<path d="M{x:.1f} {top + height}v5" stroke="black"/>'
                   f'<text x="{x:.1f}" y="{top + height + 22}" '
                   f'text-anchor="middle">10<tspan dy="-6" font-size="10">{e}'
                   '</tspan></text>')
    for i in range(5):
        loss = low + (high - low) * i / 4
        y = y_of(loss)
        out.append(f'<path d="M{left - 5} {y:.1f}h5" stroke="black"/>'
                   f'<text x="{left - 10}" y="{y + 5:.1f}" '
                   f'text-anchor="end">{loss:.2f}</text>')
    # Names above and below in turn, so that those of neighbours stay apart.
    for i, (name, losses, sent) in enumerate(sorted(rows, key=lambda r: r[2])):
        x, y = x_of(sent), y_of(sum(losses) / len(losses))
        out.append(f'<path d="M{x:.1f} {y_of(max(losses)):.1f}V'
                   f'{y_of(min(losses)):.1f}" stroke="#0060a0" '
                   'stroke-width="2"/>'
                   f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" '
                   'fill="#0060a0"/>'
                   f'<text x="{x:.1f}" y="{y - 12 if i % 2 else y + 22:.1f}" '
                   f'text-anchor="middle">{name}</text>')
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n</svg>\n")


def check(rows, steps):
    """What holds by construction."""
    sent = {name: n for name, _, n in rows}
    one = sent["small batch"] // steps
    wanted = {"huge batch": steps // H, "local SGD": steps // H,
              "post-local SGD": steps // 2 + steps // 2 // H,
              "DiLoCo": steps // (4 * H)}
    wrong = [name for name, n in wanted.items() if sent[name] != n * one]
    if wrong:
        sys.exit(f"bytes of {', '.join(wrong)} are not those of the meetings")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--quick", action="store_true", help="only see if it runs")
    p.add_argument("--train", default="plait-train")
    p.add_argument("--prep", default="plait-prep")
    p.add_argument("--out", default=".")
    args = p.parse_args()
    text = read_text()
    if text is None and args.quick:
        text = b"In the beginning was no book, but a sentence. " * 20000
    if text is None:
        sys.exit("local_sgd.py: no program bible: install bible-kjv")
    steps, seeds = (64, (1,)) if args.quick else (STEPS, SEEDS)
    with tempfile.TemporaryDirectory(prefix="plait-study-") as work:
        prepare(args, text, work)
        rows = collect(args, work, steps, seeds)
    check(rows, steps)
    print_table(rows)
    draw(rows, os.path.join(args.out, "local_sgd.svg"))


if __name__ == "__main__":
    main()
