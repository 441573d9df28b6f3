# SPDX-License-Identifier: Apache-2.0
"""the best learning rate of models of several widths, with and without muP

A small llama reads the King James Bible at widths a factor of 2 apart, each
at rates a factor of 2 apart. Without model.mup the best rate falls as the
width grows; with it (Yang et al., arXiv 2203.03466) the rate that is best for
the smallest model is best for all.
"""
import math

from plot import Plot, save
from study import Failure, diverged, last, table

LETTER = "i"
BASE = 64
WIDTHS = (64, 128, 256)
RATES = tuple(2.0 ** e for e in range(-10, -2))
STEPS, SEQUENCES = 60, 16
TEXT = {
    "model.family": "llama", "model.layers": 2, "model.vocab": 257,
    "model.seq_len": 64, "train.global_batch": SEQUENCES,
    "train.micro_batch": SEQUENCES, "train.eval_steps": 8,
    "optim.weight_decay": 0, "optim.betas": [0.9, 0.95],
    "lr.schedule": "constant", "log.every": 1,
}


def config(data, width, rate, mup, steps):
    """Heads of 16 columns, so that there are more of them in a wider model."""
    c = {**TEXT, **data, "model.hidden": width, "model.heads": width // 16,
         "model.ffn": 2 * width, "optim.lr": rate, "train.steps": steps,
         "train.eval_every": steps, "lr.warmup": max(1, steps // 6)}
    return {**c, "model.mup": BASE} if mup else c


def curve(study, data, width, rates, mup, steps):
    """The validation loss at each rate; infinity where it has diverged."""
    found = study.train_all([config(data, width, rate, mup, steps)
                             for rate in rates])
    return [math.inf if diverged(m) else last(m, "val_loss") for m in found]


def shown(losses):
    return [loss if loss < 4 else None for loss in losses]


def rate_text(rate):
    return f"2^{round(math.log2(rate))}"


def check_base(study, data):
    """At the base width nothing is different."""
    usual, base = (curve(study, data, BASE, RATES[3:4], mup, 3)
                   for mup in (False, True))
    if usual != base:
        raise Failure(f"at the base width the loss is {base[0]}, without mup "
                      f"{usual[0]}")


def study_one(study, data, mup, grid):
    """(plot, rows) of all widths, with muP or without."""
    widths, rates, steps = grid
    name = "with muP" if mup else "usual"
    plot = Plot(f"Llama of 2 layers on the Bible, {name}", "learning rate",
                f"validation loss after {steps} steps", x_log=2)
    rows, first = [], None
    for width in widths:
        losses = curve(study, data, width, rates, mup, steps)
        best = losses.index(min(losses))
        first = best if first is None else first
        rows.append((name, width, rate_text(rates[best]),
                     f"{losses[best]:.3f}", f"{losses[first]:.3f}"))
        study.say(f"{name}, {width}: " + ", ".join(
            f"{loss:.3f} at {rate_text(rate)}"
            for rate, loss in zip(rates, losses)))
        plot.line(f"width {width}", list(zip(rates, shown(losses))))
    return plot, rows


def run(study):
    data = study.bible()
    grid = (WIDTHS, RATES, STEPS)
    if study.quick:
        grid = (WIDTHS[:2], RATES[3:5], 3)
    check_base(study, data)
    usual, with_mup = (study_one(study, data, mup, grid)
                       for mup in (False, True))
    save(study.path("width.svg"), usual[0], with_mup[0])
    print(table(("parametrization", "width", "best rate", "loss there",
                 f"loss at the best rate of {BASE}"), usual[1] + with_mup[1]))
