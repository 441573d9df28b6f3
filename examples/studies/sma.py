# SPDX-License-Identifier: Apache-2.0
"""CROSSBOW's model averaging against synchronous SGD, over learners

Koliousis et al. (arXiv 1901.02244): with more learners synchronous SGD needs
a larger global batch, and more epochs; model averaging (sync.mode sma) keeps
a small batch for each learner and a model of its own. ResNet-8 on
scikit-learn's digits, 16 images for each learner and step; how long until the
median accuracy of the last 5 evaluations is on target, as they measure it.
"""
import math

from plot import Plot, save
from study import Failure, last, mean, median, table

LETTER = "g"
LEARNERS = (1, 2, 4, 8, 16)
RANKS = 2         # at most; more learners take turns on them
BATCH = 16        # of a learner
EPOCHS = 12
TARGET = 0.975    # share of validation images that are right
WINDOW = 5
RATES = {"synchronous": (1, 2, 4), "SMA": (1, 2, 4)}  # times BASE
BASE = 0.05
MODEL = {
    "model.family": "resnet", "model.depth": 8, "model.width": 16,
    "model.classes": 10, "model.input": [1, 8, 8], "data.mean": 0.3,
    "data.std": 0.37, "optim.name": "sgd", "optim.momentum": 0.9,
    "optim.weight_decay": 5e-4, "optim.clip": 0,
    "lr.schedule": "constant", "lr.warmup": 0, "train.micro_batch": BATCH,
}


def config(data, way, learners, rate, seed, epochs):
    batch = BATCH * learners
    ranks = min(RANKS, learners)
    steps = epochs * 1408 // batch
    sync = {"sync.mode": "sma", "sync.learners": learners // ranks} \
        if way == "SMA" else {}
    return {**MODEL, **data, **sync, "optim.lr": rate, "train.seed": seed,
            "train.global_batch": batch, "train.steps": steps,
            "train.eval_every": max(1, 1408 // batch // 2),
            "train.eval_steps": max(1, 352 // batch)}


def reached(metrics, target):
    """(epochs, steps, seconds) to the target; infinity where it was not
    reached."""
    seen, seconds = [], 0
    for line in metrics:
        seconds += line["step_s"]
        if "accuracy" not in line:
            continue
        seen.append(line["accuracy"])
        if len(seen) >= WINDOW and median(seen[-WINDOW:]) >= target:
            return line["tokens"] / 1437, line["step"], seconds
    return math.inf, math.inf, math.inf


def try_rates(study, data, way, learners, epochs, target):
    """(rate, results, metrics) of the rate that is there first."""
    found = []
    for factor in RATES[way][:1] if study.quick else RATES[way]:
        runs = study.train_all(
            [config(data, way, learners, BASE * factor, seed, epochs)
             for seed in study.seeds], min(RANKS, learners))
        found.append((BASE * factor, [reached(m, target) for m in runs], runs))
    return min(found, key=lambda one: (median([e for e, _, _ in one[1]]),
                                       mean([min(e, 99) for e, _, _ in
                                             one[1]])))


def row(way, learners, found):
    rate, results, runs = found
    epochs, steps, seconds = ([r[i] for r in results] for i in range(3))
    right = [100 * last(m, "accuracy") for m in runs]
    ends = [last(m, "val_loss") for m in runs]
    return (way, learners, BATCH * learners, f"{rate:g}",
            cell(median(epochs), 1),
            f"{cell(min(epochs), 1)}, {cell(max(epochs), 1)}",
            cell(median(steps), 0), cell(median(seconds), 2),
            f"{mean(right):.2f} %", f"{mean(ends):.3f}")


def cell(value, digits):
    return f"{value:.{digits}f}" if math.isfinite(value) else "never"


def check(study, data):
    """By construction: one learner that is not pulled to the average is
    plain SGD, bit for bit; learners who take turns on a rank are those that
    have one each."""
    plain = {**config(data, "synchronous", 1, BASE, 1, 1), "train.steps": 10}
    alone = {**plain, "sync.mode": "sma", "sync.alpha": 0}
    one, two = [[line["loss"] for line in m]
                for m in study.train_all([plain, alone])]
    if one != two:
        raise Failure("SMA with one learner and alpha 0 is not SGD")
    four = {**config(data, "SMA", 4, BASE, 1, 1), "train.steps": 6}
    turns = study.train({**four, "sync.learners": 4})
    spread = study.train({**four, "sync.learners": 2}, RANKS)
    if any(abs(a["loss"] / b["loss"] - 1) > 1e-4
           for a, b in zip(turns, spread)):
        raise Failure("learners in turn are not those on ranks")


def run(study):
    data = study.digits(352)
    check(study, data)
    epochs, target = (3, 0.3) if study.quick else (EPOCHS, TARGET)
    plot = [Plot(f"Until {100 * target:g} % are right", "learners", label,
                 x_log=2) for label in ("epochs", "steps")]
    rows = []
    for way in RATES:
        points = []
        for learners in LEARNERS[1:3] if study.quick else LEARNERS:
            found = try_rates(study, data, way, learners, epochs, target)
            rows.append(row(way, learners, found))
            points.append((learners, found[1]))
            study.say(" | ".join(str(c) for c in rows[-1]))
        for i in range(2):
            plot[i].line(way, *shown(points, i))
    print(table(("way", "learners", "global batch", "best rate", "epochs",
                 "least, most", "steps", "seconds", "right at the end",
                 "loss at the end"), rows))
    save(study.path("sma.svg"), *plot)


def shown(points, i):
    """Medians and spread, where all seeds are there."""
    line, spread = [], []
    for learners, results in points:
        values = [r[i] for r in results]
        ok = math.isfinite(max(values))
        line.append((learners, median(values) if ok else None))
        spread.append((min(values), max(values)) if ok else (None, None))
    return line, spread
