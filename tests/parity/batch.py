#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A batch size that changes during the run gives the same run in every layout,
also after a resume in another layout: losses, rates and batches of every step
against one process.

    batch.py --train PROGRAM
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import parity

STEPS = 12
SAVE_EVERY = 5  # between two changes of the batch size
MODEL = dict(family="gpt2", layers=2, hidden=32, heads=4, vocab=257)
GROWTH = "[[2, 12], [4, 24], [8, 48], [10, 8]]"
BATCHES = [16] * 2 + [12] * 2 + [24] * 4 + [48] * 2 + [8] * 2

# sizes of tp, pp, dp and cp; settings of parallel: and train:
LAYOUTS = [("211", ""), ("121", ""), ("112", ""), ("222", "micro_batch=1"),
           ("112", "zero=1"), ("112", "zero=2"), ("112", "zero=3"),
           ("1112", ""), ("121", "schedule=gpipe")]
# before and after the interruption
RESUMES = [(("111", ""), ("222", "micro_batch=1 zero=1")),
           (("112", "zero=2"), ("211", "micro_batch=4"))]


def write_config(path, work):
    shape = ", ".join(f"{k}: {v}" for k, v in MODEL.items())
    with open(path, "w") as f:
        f.write(f"""
model: {{{shape}, seq_len: 16}}
data: {{train: {work}/tokens.bin, format: llmc, val: {work}/tokens.bin}}
train: {{steps: {STEPS}, global_batch: 16, micro_batch: 2, seed: 5, noise: 0.5,
        eval_every: 3, eval_steps: 2}}
optim: {{lr: 3e-3}}
lr: {{warmup: 3, warmup_from: 0.1, schedule: wsd, stable: 0.5,
     base_batch: 16, scaling: sqrt}}
batch: {{growth: {GROWTH}}}
checkpoint: {{every: {SAVE_EVERY}, keep: 0, async: false}}
""")


def deviation(got, want):
    """The largest relative deviation of the losses; fails if steps, batches,
    tokens or rates differ."""
    if [g["step"] for g in got] != [w["step"] for w in want]:
        raise parity.Failed(f"{len(got)} lines of metrics, not {len(want)}")
    for key in ("global_batch", "tokens", "lr"):
        if [g[key] for g in got] != [w[key] for w in want]:
            raise parity.Failed(f"{key} {[g[key] for g in got]}, one "
                                f"process: {[w[key] for w in want]}")
    return max(parity.loss_deviation([g[key] for g in got if key in g],
                                     [w[key] for w in want if key in w])
               for key in ("loss", "val_loss", "grad_norm"))


class Rows:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.config = os.path.join(work, "c.yaml")
        self.count = self.failed = 0
        parity.write_tokens(os.path.join(work, "tokens.bin"))
        write_config(self.config, work)
        self.one = self.run("111", "")

    def run(self, layout, strand, *more):
        return parity.metrics(self.args, self.config, self.work, layout,
                              strand, *more)

    def whole(self, layout, strand):
        return deviation(self.run(layout, strand), self.one)

    def resumed(self, before, after):
        """The second part of a run whose first part had another layout."""
        out = os.path.join(self.work, "checkpoints")
        self.run(*before, "--set", f"checkpoint.dir={out}")
        step = os.path.join(out, f"step-{SAVE_EVERY:08d}")
        os.unlink(os.path.join(self.work, "metrics"))
        got = self.run(*after, "--resume", step)
        shutil.rmtree(out)
        return deviation(got, self.one[SAVE_EVERY:])

    def check(self, name, row, *settings):
        self.count += 1
        try:
            worst = row(*settings)
            good, text = worst <= parity.LOSS_RTOL, f"{worst:.1e}"
        except (parity.Failed, subprocess.TimeoutExpired) as e:
            good, text = False, "\n# " + str(e).replace("\n", "\n# ")
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}: {text}",
              flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--train", required=True, help="the plait-train program")
    args = p.parse_args()
    args.launcher, args.device, args.timeout = "mpirun", "cpu", 240
    work = tempfile.mkdtemp(prefix="plait-batch-")
    print(f"1..{1 + len(LAYOUTS) + len(RESUMES)}")
    try:
        rows = Rows(args, work)
        got = [line["global_batch"] for line in rows.one]
        rows.check(f"batches {got}", lambda: 0.0 if got == BATCHES else 1.0)
        for layout, strand in LAYOUTS:
            rows.check(f"{layout} {strand}".rstrip(), rows.whole, layout,
                       strand)
        for before, after in RESUMES:
            rows.check(f"resume of {' '.join(before).rstrip()} under "
                       f"{' '.join(after).rstrip()}", rows.resumed, before,
                       after)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if rows.failed else 0


if __name__ == "__main__":
    sys.exit(main())
