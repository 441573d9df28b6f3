# SPDX-License-Identifier: Apache-2.0
"""a batch that grows against a rate that decays, and a batch that follows

Smith et al. (arXiv 1711.00489): where the learning rate would fall by a
factor, the batch may grow by it; the curve over the data is the same, in
fewer steps. ResNet-8 on scikit-learn's digits with SGD, and a small GPT-2 on
the King James Bible with AdamW, there also with a batch that follows the
gradient noise scale (batch.growth auto; McCandlish et al., arXiv 1812.06162).
"""
from plot import Plot, save
from study import Failure, last, mean, table

LETTER = "d"
FACTOR = 4  # of each decay
ENDS = (0.5, 0.75)  # shares of the data where the rate falls
POINTS = 24  # evaluations of a curve

IMAGES = {
    "model.family": "resnet", "model.depth": 8, "model.width": 16,
    "model.classes": 10, "model.input": [1, 8, 8], "data.mean": 0.3,
    "data.std": 0.37, "data.shift": 1, "optim.name": "sgd",
    "optim.lr": 0.2, "optim.momentum": 0.9, "optim.weight_decay": 5e-4,
    "optim.clip": 0, "lr.warmup": 0, "train.micro_batch": 16,
}
TEXT = {
    "model.family": "gpt2", "model.layers": 2, "model.hidden": 64,
    "model.heads": 4, "model.vocab": 257, "model.seq_len": 64,
    "optim.name": "adamw", "optim.lr": 0.006, "optim.weight_decay": 0.1,
    "lr.warmup": 20, "train.micro_batch": 4,
}


def decays(steps):
    return [round(end * steps) for end in ENDS]


def growth(steps, batch):
    """(steps in all, batch.growth): after the same data as the decays."""
    first, second = decays(steps)
    middle = first + (second - first) // FACTOR
    return middle + (steps - second) // FACTOR ** 2, [
        [first, batch * FACTOR], [middle, batch * FACTOR ** 2]]


def methods(steps, batch, auto):
    """{name: settings}. All see steps * batch samples."""
    short, grown = growth(steps, batch)
    most = batch * FACTOR ** 2
    out = {
        "constant": {"train.steps": steps, "lr.schedule": "constant"},
        "decay": {"train.steps": steps, "lr.schedule": "step",
                  "lr.decay_at": decays(steps), "lr.decay_by": 1 / FACTOR},
        "growth": {"train.steps": short, "lr.schedule": "constant",
                   "batch.growth": grown},
        "large from the start": {
            "train.steps": steps // FACTOR ** 2, "lr.schedule": "constant",
            "train.global_batch": most},
    }
    if auto:
        # How many steps that takes is known afterwards.
        out["auto"] = {"train.steps": steps, "lr.schedule": "constant",
                       "batch.growth": "auto", "batch.max": most}
    return out


def until(metrics, samples, length):
    """The steps that see no more than `samples`."""
    return [line for line in metrics if line["tokens"] <= samples * length]


def evaluated(settings, batch, steps, images):
    """With evaluations of about the same images or sequences."""
    batch = settings.get("train.global_batch", batch)
    count = settings["train.steps"]
    every = max(n for n in range(1, max(1, count // POINTS) + 1)
                if count % n == 0)  # so that the last step is one
    if settings.get("batch.growth") == "auto":
        every = 5
    return {"train.global_batch": batch, **settings,
            "train.eval_every": every,
            "train.eval_steps": max(1, images // batch)}


def compare(study, plain, steps, batch, images, auto=False):
    """{name: metrics of each seed}, cut after the same data."""
    length = plain.get("model.seq_len", 1)
    out = {}
    for name, settings in methods(steps, batch, auto).items():
        runs = study.train_all(
            [{**plain, "train.seed": seed,
              **evaluated(settings, batch, steps, images)}
             for seed in study.seeds])
        out[name] = [until(m, steps * batch, length) for m in runs]
        study.say(f"{name}: {len(out[name][0])} steps, "
                  f"{mean([last(m, 'val_loss') for m in out[name]]):.4f}")
    return out


def rows_of(what, found, images):
    for name, runs in found.items():
        ends = [last(m, "val_loss") for m in runs]
        count = mean([len(m) for m in runs])
        row = [what, name, f"{count:.0f}",
               " ".join(str(b) for b in batches(runs[0])),
               f"{mean(ends):.4f}", f"{min(ends):.4f}, {max(ends):.4f}"]
        row.append(f"{100 * mean([last(m, 'accuracy') for m in runs]):.2f} %"
                   if images else "")
        yield row


def batches(metrics):
    """Each batch of a run once, in their order."""
    out = []
    for line in metrics:
        if not out or line["global_batch"] != out[-1]:
            out.append(line["global_batch"])
    return out


def draw(title, x_label, found, length):
    plot = Plot(title, x_label, "validation loss", y_log=10)
    for name, runs in found.items():
        # Those of a batch that follows are evaluated at other samples.
        runs = runs[:1] if name == "auto" else runs
        curves = [[(line["tokens"] / length, line["val_loss"]) for line in m
                   if "val_loss" in line] for m in runs]
        plot.line(name, [(column[0][0], mean([y for _, y in column]))
                         for column in zip(*curves)], marks=False,
                  dash=name == "growth")
    return plot


def check(steps, batch, found):
    """By construction: growth sees the same samples in the steps that
    methods() gives it, and its batches are those of the list."""
    short, grown = growth(steps, batch)
    for decay, grow in zip(found["decay"], found["growth"]):
        if grow[-1]["tokens"] != decay[-1]["tokens"] or len(grow) != short:
            raise Failure("growth has seen other data than decay")
        if batches(grow) != [batch] + [b for _, b in grown]:
            raise Failure("the batches are not those of batch.growth")
        first = grown[0][0]
        if [line["loss"] for line in grow[:first]] != \
                [line["loss"] for line in decay[:first]]:
            raise Failure("growth and decay differ before the first decay")


def run(study):
    # Multiples of 64 steps, so that decay and growth end at one sample.
    steps, batch = 64 if study.quick else 2816, 16
    long = 64 if study.quick else 1600
    images = compare(study, {**IMAGES, **study.digits(352)}, steps, batch, 352)
    check(steps, batch, images)
    text = compare(study, {**TEXT, **study.bible()}, long, batch // 2, 128,
                   auto=True)
    check(long, batch // 2, text)
    print(table(("data", "method", "steps", "batches", "validation loss",
                 "least, most", "right"),
                [*rows_of("digits", images, True),
                 *rows_of("Bible", text, False)]))
    save(study.path("growth.svg"),
         draw("ResNet-8 on digits, SGD", "images seen", images, 1),
         draw("GPT-2 on the Bible, AdamW", "sequences seen", text, 64))
