#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run measures of itself, from end to end.

Noise scale: with a rate of 0 the weights stay, so that the mean gradient of
all samples and their covariance are known: one step over all samples gives
|G|^2, steps of one sample |g_n|^2. Every layout's noise_scale is compared with
that. Noise: the same steps give each sample's factor. Outliers: a text with a
few broken sentences; all layouts flag and skip the same steps, also after a
resume.

    meters.py --train PROGRAM
"""
import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import parity
from images import write_images

SEQ_LEN = 8
SAMPLES = 1024
STEPS = 300
NOISE = 0.2

# sizes of tp, pp, dp and cp; settings
LAYOUTS = [("111", ""), ("112", ""), ("211", ""), ("121", ""),
           ("222", "zero=1"), ("112", "zero=2"), ("112", "zero=3"),
           ("124", "schedule=zb-h1"), ("112", "precision=fp16"),
           ("112", "grad_sync=naive"), ("211", "zero=2 sequence=true")]
UNKNOWN = [("111", "micro_batch=16"), ("1112", ""), ("121", "schedule=gpipe"),
           ("211", "sequence=true")]


def write_config(path, tokens, text):
    with open(path, "w") as f:
        f.write(f"""
model: {{family: gpt2, layers: 2, hidden: 16, heads: 2, vocab: 257,
        seq_len: {SEQ_LEN}, tie_embeddings: false}}
data: {{train: {tokens}, format: llmc}}
{text}
""")


class Checks:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.config = os.path.join(work, "c.yaml")
        self.count = self.failed = 0

    def run(self, layout, strand, *settings):
        more = [o for s in settings for o in ("--set", s)]
        return parity.metrics(self.args, self.config, self.work, layout,
                              strand, *more)

    def check(self, name, test):
        """`test` returns whether it passed, and a text."""
        self.count += 1
        try:
            good, text = test()
        except (parity.Failed, subprocess.TimeoutExpired) as e:
            good, text = False, "\n# " + str(e).replace("\n", "\n# ")
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}: {text}",
              flush=True)


# -- noise and its scale ------------------------------------------------------

def single_norms(c, *settings):
    """The gradient norm of each sample, in the order of the run."""
    lines = c.run("111", "micro_batch=1", "train.global_batch=1",
                  f"train.steps={SAMPLES}", *settings)
    return [line["grad_norm"] for line in lines]


def check_scale(c, truth, layout, strand):
    got = c.run(layout, strand)[-1]["noise_scale"]
    if got is None:
        return False, "null"
    return abs(got / truth - 1) < 0.1, f"{got:.3f}, in truth {truth:.3f}"


def check_noise(single):
    def test(c):
        noisy = single_norms(c, f"train.noise={NOISE}")
        z = [a / b for a, b in zip(noisy, single)]
        mean = sum(z) / len(z)
        spread = (sum((x - mean) ** 2 for x in z) / len(z)) ** 0.5
        return (abs(mean - 1) < 5 * NOISE / SAMPLES ** 0.5 and
                abs(spread / NOISE - 1) < 5 / (2 * SAMPLES) ** 0.5,
                f"mean {mean:.4f}, deviation {spread:.4f}"), z
    return test


def check_pairs(c, single, z):
    """Compare (z1 g1 + z2 g2) / 2, by |g1|, |g2| and |(g1 + g2) / 2|."""
    settings = "train.global_batch=2", "train.steps=40"
    plain = c.run("111", "", *settings)
    noisy = c.run("111", "", f"train.noise={NOISE}", *settings)
    worst = 0.0
    for i, (a, b) in enumerate(zip(plain, noisy)):
        g1, g2 = single[2 * i:2 * i + 2]
        z1, z2 = z[2 * i:2 * i + 2]
        dot = (4 * a["grad_norm"] ** 2 - g1 ** 2 - g2 ** 2) / 2
        want = ((z1 * g1) ** 2 + (z2 * g2) ** 2 + 2 * z1 * z2 * dot) / 4
        worst = max(worst, abs(b["grad_norm"] ** 2 / want - 1),
                    abs(b["loss"] / a["loss"] - 1))
    return worst < 1e-4, f"{worst:.1e}"


def check_noise_scale(c):
    parity.write_tokens(os.path.join(c.work, "tokens.bin"),
                        SAMPLES * SEQ_LEN + 1)
    write_config(c.config, os.path.join(c.work, "tokens.bin"), f"""
train: {{steps: {STEPS}, global_batch: 16, micro_batch: 2, seed: 3}}
optim: {{lr: 0}}
""")
    single = single_norms(c)
    whole = c.run("111", "micro_batch=64", f"train.global_batch={SAMPLES}",
                  "train.steps=1")[0]["grad_norm"] ** 2
    truth = sum(g * g for g in single) / SAMPLES / whole - 1
    for layout, strand in LAYOUTS:
        c.check(f"noise scale, {layout} {strand}".rstrip(),
                lambda: check_scale(c, truth, layout, strand))
    for layout, strand in UNKNOWN:
        lines = c.run(layout, strand, "train.steps=2")
        c.check(f"not known, {layout} {strand}",
                lambda: (all(line["noise_scale"] is None for line in lines),
                         "null"))
    check_follows(c, truth)
    noise, z = check_noise(single)(c)
    c.check("a sample's gradient times its factor", lambda: noise)
    c.check("a batch's gradient is the mean of those, its loss as without",
            lambda: check_pairs(c, single, z))


# -- a batch size that follows the noise scale --------------------------------

def batches(lines):
    """[(batch size, number of steps with it), ...]"""
    out = []
    for line in lines:
        if not out or out[-1][0] != line["global_batch"]:
            out.append((line["global_batch"], 0))
        out[-1] = out[-1][0], out[-1][1] + 1
    return out


def check_follows(c, truth):
    out = os.path.join(c.work, "checkpoints")
    settings = ("batch.growth=auto", "batch.max=64", "train.steps=80",
                f"checkpoint.dir={out}", "checkpoint.every=60",
                "checkpoint.keep=0")
    got = batches(c.run("111", "", "batch.min=2", *settings))
    c.check(f"a batch falls to the noise scale of {truth:.1f}",
            lambda: (got == [(16, 50), (4, 30)], str(got)))
    os.unlink(os.path.join(c.work, "metrics"))
    step = os.path.join(out, "step-00000060")
    after = batches(parity.metrics(
        c.args, c.config, c.work, "112", "zero=1", "--resume", step,
        *[o for s in (*settings, "batch.min=2") for o in ("--set", s)]))
    c.check("and stays there after a resume under another layout",
            lambda: (after == [(4, 20)], str(after)))
    shutil.rmtree(out)
    coarse = batches(c.run("111", "micro_batch=4", "batch.min=2", *settings))
    c.check("but not to one micro-batch, of which nothing can be measured",
            lambda: (coarse == [(16, 50), (8, 30)], str(coarse)))
    shutil.rmtree(out)
    # train.noise of variance s^2 adds s^2 E |g_n|^2 to the covariance.
    more = truth + 5.5 * (truth + 1)
    up = batches(c.run("112", "", f"train.noise={5.5 ** 0.5}",
                       "train.global_batch=8", *settings))
    c.check(f"or grows to below one of {more:.1f}",
            lambda: (up == [(8, 50), (16, 30)], str(up)))
    shutil.rmtree(out)


# -- image models -------------------------------------------------------------

def steps_of(c, batch, steps):
    lines = c.run("111", "", f"train.global_batch={batch}",
                  f"train.steps={steps}")
    return sum(line["grad_norm"] ** 2 for line in lines) / steps


def check_mean(c, truth, layout, strand):
    """The mean of the later lines; in a layout whose part is one micro-batch,
    50 steps would be too few."""
    steps = STEPS if "2" in layout else 4 * STEPS
    lines = c.run(layout, strand, f"train.steps={steps}")[50:]
    got = sum(line["noise_scale"] for line in lines) / len(lines)
    return abs(got / truth - 1) < 0.1, f"{got:.3f}, in truth {truth:.3f}"


def check_images(c):
    """The noise scale of micro-batches, each with its own batch norm: |G|^2
    and the mean |g|^2 come from steps over all images and over one
    micro-batch."""
    n, part = 1024, 4
    data, _, _ = write_images(os.path.join(c.work, "i"), n, (1, 6, 6), 4)
    with open(c.config, "w") as f:
        f.write(f"""
model: {{family: resnet, depth: 8, width: 2, input: [1, 6, 6], classes: 4}}
data: {{train: {data}, mean: 0.2, std: 0.3}}
train: {{steps: {STEPS}, global_batch: 64, micro_batch: {part}, seed: 3}}
optim: {{name: sgd, lr: 0}}
""")
    one = steps_of(c, part, 2 * n // part)
    every = steps_of(c, n, 2)
    square = (n / part * every - one) / (n / part - 1)
    truth = part * (one / square - 1)
    for layout, strand in [("111", ""), ("112", ""), ("112", "zero=2")]:
        c.check(f"noise scale of a resnet, {layout} {strand}".rstrip(),
                lambda: check_mean(c, truth, layout, strand))
    lines = c.run("112", "model.norm=sync", "train.steps=2")
    c.check("not known with sync batch norm of two ranks",
            lambda: (all(line["noise_scale"] is None for line in lines),
                     "null"))
    check_image_growth(c)


def check_image_growth(c):
    lines = c.run("112", "", "batch.growth=auto", "batch.min=8",
                  "batch.max=256", "train.steps=60")
    scale, want = lines[49]["noise_scale"], 64
    while 2 * want <= min(scale, 256):
        want *= 2
    while want // 2 >= max(scale, 8):
        want //= 2
    got = batches(lines)
    c.check(f"and a resnet's batch follows one of {scale:.1f}", lambda: (
        got == [(64, 50), (want, 10)] and want < 64, str(got)))


# -- outliers -----------------------------------------------------------------

def write_broken(path):
    """One sentence repeated, except for a few samples of noise."""
    tokens = [97 + i % 5 for i in range(SAMPLES * SEQ_LEN + 1)]
    for sample in (300, 301, 700):
        for i in range(SEQ_LEN):
            tokens[sample * SEQ_LEN + i] = 130 + (i * i * 37 + sample) % 100
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253))
        f.write(struct.pack(f"<{len(tokens)}H", *tokens))


def summary(lines):
    return [(line["step"], line.get("outlier", False),
             line.get("skipped", False)) for line in lines
            if "outlier" in line or "skipped" in line]


def check_same(c, want, lines):
    worst = parity.loss_deviation([line["loss"] for line in lines],
                                  [line["loss"] for line in want])
    return (summary(lines) == summary(want) and
            worst <= parity.LOSS_RTOL, f"{summary(lines)}, loss {worst:.1e}")


def check_outliers(c):
    write_broken(os.path.join(c.work, "tokens.bin"))
    write_config(c.config, os.path.join(c.work, "tokens.bin"), """
train: {steps: 130, global_batch: 4, micro_batch: 2, seed: 3,
        skip_outliers: true}
optim: {lr: 3e-3}
lr: {schedule: constant, warmup: 10}
checkpoint: {every: 60, keep: 0, async: false}
""")
    out = os.path.join(c.work, "checkpoints")
    one = c.run("111", "", f"checkpoint.dir={out}")
    flagged = summary(one)
    c.check("steps with a broken sample are skipped",
            lambda: (len(flagged) >= 2 and all(s for _, _, s in flagged),
                     str(flagged)))
    free = c.run("111", "", "train.skip_outliers=false")
    c.check("or flagged alone", lambda: (
        any(o and not s for _, o, s in summary(free)) and
        not any(s for _, o, s in summary(free)), str(summary(free))))
    for layout, strand in [("112", "zero=1"), ("222", "micro_batch=1")]:
        c.check(f"the same, {layout} {strand}",
                lambda: check_same(c, one, c.run(layout, strand)))
    before = 60
    os.unlink(os.path.join(c.work, "metrics"))
    more = parity.metrics(c.args, c.config, c.work, "211", "", "--resume",
                          os.path.join(out, f"step-{before:08d}"))
    c.check(f"the same after step {before} under another layout",
            lambda: check_same(c, one[before:], more))
    shutil.rmtree(out)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--train", required=True, help="the plait-train program")
    args = p.parse_args()
    args.launcher, args.device, args.timeout = "mpirun", "cpu", 240
    work = tempfile.mkdtemp(prefix="plait-meters-")
    try:
        c = Checks(args, work)
        check_noise_scale(c)
        check_images(c)
        check_outliers(c)
        print(f"1..{c.count}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if c.failed else 0


if __name__ == "__main__":
    sys.exit(main())
