#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Image models: every layout gives one process's curve, and so does a run that
is resumed in another layout.

    image.py PLAIT_TRAIN        TAP, then the worst deviation
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIB = os.path.join(HERE, "..", "lib")
sys.path.insert(0, LIB)
from images import write_images

RTOL = 2e-5
STEPS = 10
MODELS = {
    "mlp": "family: mlp, layers: 3, width: 33",
    "regression": "family: mlp, layers: 0, loss: squared, classes: 1",
    "batch": "family: resnet, depth: 8, width: 6",
    "ghost": "family: resnet, depth: 8, width: 6, norm: ghost, "
             "ghost_batch: 2, label_smoothing: 0.1",
    "sync": "family: resnet, depth: 8, width: 6, norm: sync",
    "deep": "family: resnet, depth: 50, width: 4",
    "noisy": "family: mlp, layers: 2, width: 33",
}
# model, dp, pp, settings. A batch norm depends on the size of the micro-batch;
# that of sync on dp times it. Those of QUICK have each model, kind of layout and
# ZeRO stage once (tests/lib/tier.sh).
QUICK = [
    ("mlp", 3, 1, "zero=1"), ("mlp", 1, 2, ""), ("regression", 2, 1, "zero=3"),
    ("batch", 2, 1, ""), ("batch", 1, 3, ""),
    ("ghost", 4, 1, "train.micro_batch=2"),
    ("ghost", 2, 1, "zero=3 train.micro_batch=6"), ("ghost", 2, 2, "zero=2"),
    ("sync", 4, 1, "train.micro_batch=6 zero=3"), ("deep", 2, 1, "zero=3"),
    ("noisy", 2, 1, "zero=2"),
]
LAYOUTS = QUICK if os.environ.get("PLAIT_TEST_TIER") == "quick" else QUICK + [
    ("mlp", 2, 1, ""), ("mlp", 2, 1, "zero=2"), ("mlp", 2, 1, "zero=3"),
    ("mlp", 2, 2, "zero=3"), ("mlp", 1, 1, "train.micro_batch=24"),
    ("batch", 3, 1, "zero=3"),
    ("ghost", 2, 1, ""), ("ghost", 3, 1, "zero=1"), ("ghost", 2, 1, "zero=2"),
    ("ghost", 2, 1, "grad_sync=naive"), ("ghost", 1, 3, "schedule=gpipe"),
    ("ghost", 1, 1, "train.micro_batch=24"),
    ("sync", 2, 1, "train.micro_batch=12"),
    ("deep", 1, 3, ""), ("noisy", 1, 2, ""),
    ("noisy", 1, 1, "train.micro_batch=1"),
]


# Images of `deep` are so large that its last norms have more than a few rows.
# It is hardly trained: so narrow a net of 50 layers doubles each rounding
# error in every step.
SHAPES = {model: (2, 9, 8) for model in MODELS}
SHAPES["deep"] = (1, 40, 40)
MICRO = {model: 4 for model in MODELS}
MICRO.update(sync=24, deep=12)


def config(path, model, data):
    with open(path, "w") as f:
        f.write(f"""
model: {{{MODELS[model]}, input: {list(SHAPES[model])}}}
data: {{train: {data}, val: {data}, mean: 0.2, std: 0.3, shift: 1, flip: true}}
train: {{steps: {STEPS}, global_batch: 24, micro_batch: {MICRO[model]}, seed: 5,
        eval_every: 5, eval_steps: 2, noise: {0.5 if model == "noisy" else 0}}}
optim: {{name: sgd, lr: {1e-5 if model == "deep" else 0.05}, weight_decay: 0.01}}
lr: {{warmup: 3}}
""")


def run(train, args, ranks=1, sets=()):
    cmd = [train, *args]
    for s in sets:
        cmd += ["--set", s]
    if ranks > 1:
        cmd = ["sh", os.path.join(LIB, "mpirun.sh"), str(ranks), *cmd]
    out = subprocess.run(cmd, env=dict(os.environ, OMP_NUM_THREADS="1"),
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         universal_newlines=True, timeout=240)
    return out.returncode, out.stdout


def curve(path):
    with open(path) as f:
        lines = [json.loads(line) for line in f]
    return [(m["loss"], m["grad_norm"], m.get("val_loss", 0),
             m.get("accuracy", 0)) for m in lines]


def deviation(a, b):
    if len(a) != len(b):
        return float("inf")
    return max(abs(x - y) / max(abs(y), 1e-3)
               for one, two in zip(a, b) for x, y in zip(one, two))


class Tap:
    def __init__(self):
        self.n = self.bad = 0
        self.worst = 0

    def curves(self, text, got, want):
        d = deviation(got, want)
        self.worst = max(self.worst, d)
        self.check(f"{text}: {d:.2g}", d <= RTOL)

    def check(self, text, good, why=""):
        self.n += 1
        self.bad += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {text}")
        if not good:
            print("".join(f"# {line}\n" for line in why.splitlines()), end="")


def settings(text):
    return [s if "." in s else "parallel." + s for s in text.split()]


def check_resume(tap, train, tmp, path, want):
    """Train five steps in one layout, the rest in another."""
    ckpt, log = os.path.join(tmp, "ckpt"), os.path.join(tmp, "resume.jsonl")
    for ranks, sets in ((2, ["parallel.zero=3", "train.steps=5",
                             "lr.schedule=constant"]),
                        (3, ["parallel.zero=1", "lr.schedule=constant"])):
        rc, out = run(train, [path, "--metrics", log, "--resume", "auto"],
                      ranks, sets + [f"checkpoint.dir={ckpt}"])
        tap.check(f"resume: {ranks} ranks", rc == 0, out)
    tap.curves("five steps on 2 ranks, then on 3", curve(log), want)


def check_noise(tap, train, tmp, path):
    """With single images and a rate of almost 0, noise multiplies each
    gradient by 1 + noise * (a random number of its image), and does not change
    the loss."""
    curves = []
    for noise in (0, 0.1, 0.2):
        log = os.path.join(tmp, f"noise-{noise}.jsonl")
        rc, out = run(train, [path, "--metrics", log], 1,
                      [f"train.noise={noise}", "train.global_batch=1",
                       "train.micro_batch=1", "optim.lr=1e-12"])
        if rc:
            tap.check("noise", False, out)
            return
        curves.append(curve(log))
    good = True
    for plain, one, two in zip(*curves):
        z, y = one[1] / plain[1] - 1, two[1] / plain[1] - 1
        good &= abs(y - 2 * z) < 1e-4 and 1e-4 < abs(z) < 0.6
        good &= abs(one[0] - plain[0]) < 1e-5 * plain[0]
    tap.check("noise multiplies each image's gradient", good, str(curves))


def check_averaging(tap, train, tmp, path):
    """The average of learners that have small variances is one, too: none
    below zero, of which validation would be NaN."""
    log = os.path.join(tmp, "sma.jsonl")
    for learners in (1, 4):
        rc, out = run(train, [path, "--metrics", log], 1,
                      ["sync.mode=sma", f"sync.learners={learners}",
                       "data.std=6", "train.micro_batch=24",
                       f"train.global_batch={24 * learners}",
                       "train.eval_every=1", "train.eval_steps=1"])
        with open(log) as f:
            val = [json.loads(line).get("val_loss") for line in f]
        tap.check(f"averaged statistics, {learners} learners",
                  rc == 0 and len(val) == STEPS and None not in val,
                  out + str(val))


def main(train):
    tap = Tap()
    with tempfile.TemporaryDirectory() as tmp:
        log, whole = os.path.join(tmp, "log"), {}
        for model in MODELS:
            path = os.path.join(tmp, model + ".yaml")
            data = write_images(os.path.join(tmp, model), 50, SHAPES[model],
                                10)[0]
            config(path, model, data)
            rc, out = run(train, [path, "--metrics", log])
            tap.check(f"{model}: one process", rc == 0, out)
            whole[model] = curve(log)
        for model, dp, pp, text in LAYOUTS:
            rc, out = run(train, [os.path.join(tmp, model + ".yaml"),
                                  "--metrics", log], dp * pp,
                          settings(text) + [f"parallel.pp={pp}"])
            name = f"{model} dp {dp} pp {pp} {text}".strip()
            if rc != 0:
                tap.check(name, False, out)
            else:
                tap.curves(name, curve(log), whole[model])
        path = os.path.join(tmp, "ghost.yaml")
        rc, out = run(train, [path, "--metrics", log], 1,
                      ["lr.schedule=constant"])
        check_resume(tap, train, tmp, path, curve(log))
        check_noise(tap, train, tmp, os.path.join(tmp, "mlp.yaml"))
        check_averaging(tap, train, tmp, path)
    print(f"1..{tap.n}\n# worst deviation {tap.worst:.2g}")
    return tap.bad > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
