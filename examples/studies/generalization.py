# SPDX-License-Identifier: Apache-2.0
"""the generalization gap of a large batch, and what closes it

Keskar et al. (arXiv 1609.04836): a large batch fits the training data as well
and generalises worse. Hoffer et al. (arXiv 1705.08741) close the gap by a rate
that follows the square root of the batch, ghost batch norm, multiplicative
noise, and above all by training for longer. ResNet-8 on scikit-learn's
digits, SGD with momentum; the large batch is all but a few of the images.
"""
import math

from plot import Plot, save
from study import Failure, last, mean, table

LETTER = "e"
SMALL, LARGE = 32, 1408
RATE = 0.1      # of the small batch
EPOCHS = 40
LONGER = 4      # times
POINTS = 20     # evaluations of a curve
MODEL = {
    "model.family": "resnet", "model.depth": 8, "model.width": 16,
    "model.classes": 10, "model.input": [1, 8, 8], "data.mean": 0.3,
    "data.std": 0.37, "optim.name": "sgd", "optim.momentum": 0.9,
    "optim.weight_decay": 5e-4, "optim.clip": 0, "lr.schedule": "step",
    "lr.decay_by": 0.1, "lr.warmup": 0,
}
GHOST = {"model.norm": "ghost", "model.ghost_batch": SMALL}
# The gradients of the large batch vary as those of the small one.
NOISE = {"train.noise": math.sqrt(LARGE / SMALL - 1)}
SCALED = RATE * math.sqrt(LARGE / SMALL)


def methods():
    """{name: (batch, epochs, rate, settings)}"""
    return {
        "small batch": (SMALL, EPOCHS, RATE, {}),
        "large batch": (LARGE, EPOCHS, RATE, {}),
        "+ sqrt rate": (LARGE, EPOCHS, SCALED, {}),
        "+ rate, noise": (LARGE, EPOCHS, SCALED, NOISE),
        "+ rate, ghost": (LARGE, EPOCHS, SCALED, GHOST),
        "+ rate, ghost, longer":
            (LARGE, LONGER * EPOCHS, SCALED, GHOST),
        "+ all four":
            (LARGE, LONGER * EPOCHS, SCALED, {**GHOST, **NOISE}),
    }


def config(data, method, seed, part):
    batch, epochs, rate, settings = method
    steps = int(epochs * part) * LARGE // batch
    return {**MODEL, **data, **settings, "optim.lr": rate,
            "lr.decay_at": [steps // 2, steps * 3 // 4],
            "train.seed": seed, "train.steps": steps,
            "train.global_batch": batch, "train.micro_batch": batch,
            "train.eval_every": max(1, steps // POINTS),
            "train.eval_steps": max(1, 352 // batch)}


def train_loss(metrics):
    """The mean over the last tenth of the steps."""
    losses = [line["loss"] for line in metrics]
    return mean(losses[-max(1, len(losses) // 10):])


def row(name, method, runs):
    ends = [last(m, "val_loss") for m in runs]
    right = [100 * last(m, "accuracy") for m in runs]
    known = [train_loss(m) for m in runs]
    return (name, method[0], method[1], len(runs[0]),
            f"{mean(known):.4f}", f"{mean(ends):.3f}",
            f"{mean(ends) - mean(known):.3f}",
            f"{mean(right):.2f} %", f"{min(right):.2f}, {max(right):.2f}")


def draw(plot, name, runs):
    curves = [[(line["tokens"] / 1437, line["val_loss"]) for line in m
               if "val_loss" in line] for m in runs]
    plot.line(name, [(column[0][0], mean([y for _, y in column]))
                     for column in zip(*curves)])


def check(study, data, part):
    """By construction: the norm of ghost batches as large as the micro-batch
    is that of the batch; noise of deviation 0 is none; the first loss is
    without noise."""
    plain = config(data, methods()["large batch"], 1, part)
    plain["train.steps"] = 3
    plain["lr.decay_at"] = [1]
    ghost, none, noisy, plain = [
        [line["loss"] for line in m] for m in study.train_all([
            {**plain, "model.norm": "ghost", "model.ghost_batch": LARGE},
            {**plain, "train.noise": 0}, {**plain, **NOISE}, plain])]
    if ghost != plain:
        raise Failure("one ghost batch is not the batch")
    if none != plain or noisy[0] != plain[0] or noisy[1] == plain[1]:
        raise Failure("train.noise is not what it says")


def run(study):
    data = study.digits(352)
    part = 0.1 if study.quick else 1
    check(study, data, part)
    plot = Plot("ResNet-8 on digits", "epochs", "validation loss",
                x_log=10, y_log=10)
    rows = []
    for name, method in methods().items():
        runs = study.train_all([config(data, method, seed, part)
                                for seed in study.seeds])
        rows.append(row(name, method, runs))
        study.say(" | ".join(str(cell) for cell in rows[-1]))
        draw(plot, name, runs)
    print(table(("method", "batch", "epochs", "steps", "training loss",
                 "validation loss", "gap", "right", "least, most"), rows))
    save(study.path("generalization.svg"), plot)
