# SPDX-License-Identifier: Apache-2.0
"""optimizers at a very large batch: SGD, LARS, LARC; AdamW, LAMB, Muon, SOAP

Images: ResNet-8 sees scikit-learn's digits 10 times, all but a few in each
step, by SGD, LARS (You et al., arXiv 1708.03888) and LARC, at rates a factor
of 2 apart; beside them SGD with a small batch. Text: a small GPT-2 reads the
King James Bible in 100 large steps by AdamW, LAMB (You et al., arXiv
1904.00962), Muon (Jordan et al., 2024) and SOAP (Vyas et al., arXiv
2409.11321), each at the best of its rates.
"""
import math

from plot import Plot, save
from study import Failure, diverged, last, mean, table

LETTER = "c"
SMALL, LARGE = 32, 1408  # images; 1,437 are there
MICRO = 64               # batch norm's, the same for all but SMALL
VALIDATION = 352
EPOCHS = 10
TRUST = 0.02             # of larc in NVIDIA's apex
SGD_SMALL = (0.05, 0.1, 0.2)
IMAGE_RATES = {"sgd": (0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
               "lars": (0.2, 0.4, 0.8, 1.6, 3.2, 6.4),
               "larc": (0.8, 1.6, 3.2, 6.4, 12.8, 25.6)}
IMAGES = {
    "model.family": "resnet", "model.depth": 8, "model.width": 16,
    "model.classes": 10, "model.input": [1, 8, 8], "data.mean": 0.3,
    "data.std": 0.37, "optim.momentum": 0.9, "optim.weight_decay": 5e-4,
    "optim.clip": 0, "lr.schedule": "cosine",
}

SEQUENCES, STEPS = 64, 100
TEXT_RATES = {"adamw": (0.0015, 0.003, 0.006, 0.012),
              "lamb": (0.02, 0.04, 0.08, 0.16),
              "muon": (0.012, 0.024, 0.048, 0.096),
              "soap": (0.0015, 0.003, 0.006, 0.012)}
KEYS = {"lars": {"optim.trust": TRUST}, "larc": {"optim.trust": TRUST},
        "muon": {"optim.momentum": 0.95, "optim.nesterov": True}}
NAMES = {"sgd": "SGD", "lars": "LARS", "larc": "LARC", "adamw": "AdamW",
         "lamb": "LAMB", "muon": "Muon", "soap": "SOAP"}
TEXT = {
    "model.family": "gpt2", "model.layers": 2, "model.hidden": 64,
    "model.heads": 4, "model.vocab": 257, "model.seq_len": 64,
    "optim.weight_decay": 0.1, "lr.schedule": "cosine", "lr.min": 0.1,
}


def image_config(data, name, batch, rate, seed, epochs):
    steps = max(2, epochs * 1408 // batch)
    return {**IMAGES, **data, **KEYS.get(name, {}), "optim.name": name,
            "optim.lr": rate, "train.seed": seed, "train.steps": steps,
            "train.global_batch": batch, "train.micro_batch":
            min(batch, MICRO), "train.eval_every": steps,
            "train.eval_steps": max(1, VALIDATION // batch),
            "lr.warmup": max(1, steps // 5)}


def image_curve(study, data, name, batch, rates, epochs):
    """[(rate, [(loss, accuracy) of each seed])]"""
    configs = [image_config(data, name, batch, rate, seed, epochs)
               for rate in rates for seed in study.seeds]
    found = [(last(m, "val_loss"), last(m, "accuracy"))
             for m in study.train_all(configs)]
    n = len(study.seeds)
    return [(rate, found[n * i:n * (i + 1)]) for i, rate in enumerate(rates)]


def loss_of(point):
    """The mean over the seeds; infinity if one has diverged."""
    value = mean([loss for loss, _ in point[1]])
    return value if math.isfinite(value) else math.inf


def image_row(name, batch, points, epochs):
    best = min(points, key=loss_of)
    right = [100 * accuracy for _, accuracy in best[1]]
    good = [rate for rate, found in points
            if loss_of((rate, found)) < 1.5 * loss_of(best)]
    return (name, batch, max(2, epochs * 1408 // batch), f"{best[0]:g}",
            f"{loss_of(best):.3f}", f"{mean(right):.2f} %",
            f"{min(right):.2f}, {max(right):.2f}",
            f"{max(good) / min(good):g}")


def study_images(study, epochs):
    data = study.digits(VALIDATION)
    few = study.quick
    small = image_curve(study, data, "sgd", SMALL,
                        SGD_SMALL[:1] if few else SGD_SMALL, epochs)
    rows = [image_row("SGD", SMALL, small, epochs)]
    plot = Plot(f"ResNet-8 on digits, {epochs} epochs of {LARGE} images a "
                "step", "learning rate", "validation loss", x_log=10, y_log=10)
    for name, rates in IMAGE_RATES.items():
        points = image_curve(study, data, name, LARGE,
                             rates[2:4] if few else rates, epochs)
        rows.append(image_row(NAMES[name], LARGE, points, epochs))
        study.say(" | ".join(str(cell) for cell in rows[-1]))
        plot.line(NAMES[name], *shown(points))
    least = min(loss_of(point) for point in small)
    rates = [rate for some in IMAGE_RATES.values() for rate in some]
    plot.line(f"SGD, batch {SMALL}", [(min(rates), least),
                                      (max(rates), least)],
              dash=True, marks=False)
    return plot, table(("optimizer", "batch", "steps", "best rate",
                        "validation loss", "right", "least, most",
                        "good rates: highest / lowest"), rows)


def shown(points):
    """Points and their spread for a plot; above a loss of 3 a gap."""
    line, spread = [], []
    for rate, found in points:
        losses = [loss for loss, _ in found]
        ok = loss_of((rate, found)) < 3
        line.append((rate, mean(losses) if ok else None))
        spread.append((min(losses), max(losses)) if ok else (None, None))
    return line, spread


# -- text ---------------------------------------------------------------------

def text_config(data, name, rate, seed, steps):
    return {**TEXT, **data, **KEYS.get(name, {}), "optim.name": name,
            "optim.lr": rate, "train.seed": seed, "train.steps": steps,
            "train.global_batch": SEQUENCES, "train.micro_batch": 16,
            "train.eval_every": 5, "train.eval_steps": 4,
            "lr.warmup": max(1, steps // 10)}


def takes(study, data, name):
    """Whether this plait-train has the optimizer."""
    try:
        study.train({**text_config(data, name, 1e-3, 1, 1),
                     "train.global_batch": 16})
    except Failure as e:
        study.say(f"{NAMES[name]} is left out: {e}")
        return False
    return True


def tune(study, data, name, rates, steps):
    """(rate, metrics of each seed): the rates by seed 1."""
    first = study.train_all([text_config(data, name, rate, 1, steps)
                             for rate in rates])
    ends = [math.inf if diverged(m) else last(m, "val_loss") for m in first]
    best = ends.index(min(ends))
    study.say(f"{NAMES[name]}: " + ", ".join(
        f"{end:.3f} at {rate:g}" for rate, end in zip(rates, ends)))
    return rates[best], [first[best]] + study.train_all(
        [text_config(data, name, rates[best], seed, steps)
         for seed in study.seeds[1:]])


def curve_of(runs):
    """[(step, mean validation loss over the seeds)]"""
    curves = [[(line["step"], line["val_loss"]) for line in m
               if "val_loss" in line] for m in runs]
    return [(column[0][0], mean([y for _, y in column]))
            for column in zip(*curves)]


def text_row(name, rate, runs, goal):
    ends = [last(m, "val_loss") for m in runs]
    steps = [step for step, loss in curve_of(runs) if loss <= goal]
    return (NAMES[name], SEQUENCES, f"{rate:g}", f"{mean(ends):.3f}",
            f"{min(ends):.3f}, {max(ends):.3f}",
            steps[0] if steps else "never")


def study_text(study, steps):
    data = study.bible()
    few = study.quick
    found = {name: tune(study, data, name, rates[1:2] if few else rates, steps)
             for name, rates in TEXT_RATES.items()
             if takes(study, data, name)}
    goal = mean([last(m, "val_loss") for m in found["adamw"][1]])
    plot = Plot(f"GPT-2 on the Bible, {SEQUENCES} sequences a step", "step",
                "validation loss")
    for name, (_, runs) in found.items():
        plot.line(NAMES[name], curve_of(runs))
    return plot, table(
        ("optimizer", "sequences a step", "best rate", "validation loss",
         "least, most", "steps to AdamW's last loss"),
        [text_row(name, rate, runs, goal + 1e-9)
         for name, (rate, runs) in found.items()])


def check(study):
    """By construction: where the trust coefficient is huge, min(f / lr, 1)
    is 1, and LARC is SGD."""
    data = study.digits(VALIDATION)
    plain = {**image_config(data, "sgd", LARGE, 0.1, 1, 3),
             "optim.weight_decay": 0}
    one, two = study.train_all([plain, {
        **plain, "optim.name": "larc", "optim.trust": 1e6}])
    if any(a["loss"] != b["loss"] for a, b in zip(one, two)):
        raise Failure("LARC with a huge trust coefficient is not SGD")


def run(study):
    check(study)
    images, first = study_images(study, 2 if study.quick else EPOCHS)
    text, second = study_text(study, 10 if study.quick else STEPS)
    print(first, second, sep="\n\n")
    save(study.path("optimizers.svg"), images, text)
