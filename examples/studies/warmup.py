# SPDX-License-Identifier: Apache-2.0
"""constant, gradual and no warmup of the rate at a large batch

ResNet-8 on scikit-learn's digits, batches of 512, three seeds for each rate.
Goyal et al. (arXiv 1706.02677, section 2.2 and table 1) train ResNet-50 at a
batch of 8,192 with rates that linear scaling gives: gradual warmup is as good
as the small batch, constant warmup and none are not.
"""
import math

from plot import Plot, save
from study import Failure, last, mean, table

LETTER = "b"
SMALL, LARGE = 32, 512
EPOCHS = 24
IMAGES = 1437
IMAGES_VAL = 352  # a multiple of the small batch
WARM = 5        # epochs
SMALL_RATE = 0.05
RATES = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
WAYS = {
    "no warmup": {"lr.warmup": 0},
    "constant warmup": {"lr.warmup_shape": "constant", "lr.warmup_from": 0.1},
    "gradual warmup": {"lr.warmup_shape": "gradual", "lr.warmup_from": 0.1},
}
MODEL = {
    "model.family": "resnet", "model.depth": 8, "model.width": 8,
    "model.classes": 10, "model.input": [1, 8, 8], "model.norm": "ghost",
    "model.ghost_batch": 32, "data.mean": 0.3, "data.std": 0.37,
    "train.micro_batch": 32, "optim.name": "sgd", "optim.momentum": 0.9,
    "optim.weight_decay": 1e-4, "optim.clip": 0, "lr.schedule": "cosine",
}


def config(data, batch, rate, way, epochs, seed):
    steps = math.ceil(epochs * IMAGES / batch)
    warm = math.ceil(min(WARM, epochs / 2) * IMAGES / batch)
    return {**MODEL, **data, "train.global_batch": batch,
            "train.steps": steps, "train.seed": seed,
            "train.eval_every": steps,
            "train.eval_steps": math.ceil(IMAGES_VAL / batch), "optim.lr": rate,
            "lr.warmup": warm, **way}


def outcome(metrics):
    """(validation loss, share of wrong labels); a training that diverges
    guesses."""
    loss, right = last(metrics, "val_loss"), last(metrics, "accuracy")
    return (loss, 1 - right) if math.isfinite(loss) else (math.inf, 0.9)


def try_way(study, data, batch, rate, way, epochs):
    runs = study.train_all([config(data, batch, rate, way, epochs, seed)
                            for seed in study.seeds])
    return [outcome(metrics) for metrics in runs]


def percent(results):
    wrong = [w for _, w in results]
    return (f"{100 * mean(wrong):.1f} ({100 * min(wrong):.1f} to "
            f"{100 * max(wrong):.1f})")


def show(study, small, ways):
    print(table(
        ("rate at batch 512", *(f"{way}: % wrong" for way in ways)),
        [(rate, *(percent(found[rate]) for found in ways.values()))
         for rate in next(iter(ways.values()))]))
    print(f"\nBatch {SMALL}, rate {SMALL_RATE}, which linear scaling makes "
          f"{SMALL_RATE * LARGE / SMALL:g}: {percent(small)} % wrong.")
    plot = Plot(f"Wrong labels after {EPOCHS} epochs, batch {LARGE}",
                "rate", "wrong, %", x_log=10, y_log=10)
    for way, found in ways.items():
        # No image wrong is shown as half of one: the axis has no 0.
        points = {rate: [100 * max(w, 0.5 / IMAGES_VAL) for _, w in results]
                  for rate, results in found.items()}
        plot.line(way,
                  [(rate, mean(w)) for rate, w in points.items()],
                  [(min(w), max(w)) for w in points.values()])
    rates = list(next(iter(ways.values())))
    level = 100 * max(mean([w for _, w in small]), 0.5 / IMAGES_VAL)
    plot.line(f"batch {SMALL}", [(rates[0], level), (rates[-1], level)],
              dash=True, marks=False)
    plot.upright(SMALL_RATE * LARGE / SMALL, "linear scaling")
    save(study.path("warmup.svg"), plot)


def check(study, data):
    """By construction: what the rate is before and after the warmup."""
    for name, way in WAYS.items():
        lines = study.train(config(data, LARGE, 0.1, way, 6, 1))
        first, second = (line["lr"] / 0.1 for line in lines[:2])
        ok = {"no warmup": first > 0.98,
              "constant warmup": abs(first - 0.1) < 1e-3 and second == first,
              "gradual warmup": 0.1 < first < second < 0.5}
        if not ok[name]:
            raise Failure(f"{name} begins with {first:g} and {second:g} of "
                          "the rate")


def run(study):
    data = study.digits(IMAGES_VAL)
    check(study, data)
    epochs, rates = (2, (0.2, 0.8)) if study.quick else (EPOCHS, RATES)
    small = try_way(study, data, SMALL, SMALL_RATE, WAYS["no warmup"], epochs)
    study.say(f"batch {SMALL}: {percent(small)} % wrong")
    ways = {}
    for name, way in WAYS.items():
        ways[name] = {rate: try_way(study, data, LARGE, rate, way, epochs)
                      for rate in rates}
        wrong = ", ".join(map(percent, ways[name].values()))
        study.say(f"{name}: {wrong} % wrong")
    show(study, small, ways)
