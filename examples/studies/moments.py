# SPDX-License-Identifier: Apache-2.0
"""AdamW's moments in bf16, and weights in bf16 without masters

A small GPT-2 reads a text by AdamW whose moments are kept in fp32, in bf16
rounded stochastically, in bf16 rounded to nearest, or in 8-bit codes, with a
second moment that forgets soon (0.95) and late (0.999). Then the same in bf16,
with master weights in fp32 and without.
"""
from plot import Plot, save
from study import Failure, diverged, last, mean, table

LETTER = "l"
STEPS, SEQUENCES, RATE = 480, 16, 0.004
TEXT = {
    "model.family": "gpt2", "model.layers": 2, "model.hidden": 64,
    "model.heads": 4, "model.vocab": 257, "model.seq_len": 64,
    "train.global_batch": SEQUENCES, "train.micro_batch": SEQUENCES,
    "train.eval_steps": 16, "optim.weight_decay": 0.1, "optim.lr": RATE,
    "log.every": 1,
}
KEPT = {
    "fp32": {},
    "bf16": {"optim.moments": "bf16"},
    "bf16-nearest": {"optim.moments": "bf16-nearest"},
    "8 bits": {"optim.name": "adamw8bit"},
}
BETAS = (0.95, 0.999)
BARE = {"optim.masters": "bf16"}
MASTERS = {"fp32": {}, "none": BARE,
           "none, moments in bf16": {**BARE, "optim.moments": "bf16"}}


def config(data, keys, seed, steps):
    return {**TEXT, **data, **keys, "train.seed": seed, "train.steps": steps,
            "train.eval_every": max(1, steps // 8),
            "lr.warmup": max(1, steps // 12)}


def check(study, data):
    """By construction: the first step uses moments before they are rounded,
    the second one those that were."""
    plain = config(data, {}, 1, 4)
    one, two = study.train_all([plain, {**plain, "optim.moments": "bf16"}])
    same = [a["loss"] == b["loss"] for a, b in zip(one, two)]
    if same[:2] != [True, True] or all(same):
        raise Failure("losses with optim.moments bf16 are equal in steps "
                      f"{[i + 1 for i, x in enumerate(same) if x]}, not in 1 "
                      "and 2 alone")


def curve_of(runs):
    """(step, mean validation loss) of runs that log at the same steps."""
    steps = [line["step"] for line in runs[0] if "val_loss" in line]
    return [(s, mean([line["val_loss"] for m in runs for line in m
                      if line["step"] == s and "val_loss" in line]))
            for s in steps]


def study_beta(study, data, beta, steps):
    plot = Plot(f"GPT-2 on a text, betas [0.9, {beta}]", "step",
                "validation loss")
    rows, exact = [], None
    for name, keys in KEPT.items():
        study.say(f"{beta}, {name}")
        runs = study.train_all([
            config(data, {**keys, "optim.betas": [0.9, beta]}, seed, steps)
            for seed in study.seeds])
        if any(diverged(m) for m in runs):
            rows.append((f"{beta}", name, "diverged", "", ""))
            continue
        ends = [last(m, "val_loss") for m in runs]
        exact = exact or ends
        off = [end - of for end, of in zip(ends, exact)]
        rows.append((f"{beta}", name, f"{mean(ends):.3f}",
                     f"{min(ends):.3f}, {max(ends):.3f}",
                     ", ".join(f"{x:+.4f}" for x in off)))
        plot.line(name, curve_of(runs))
    return plot, rows


def study_masters(study, data, steps):
    rows = []
    for name, keys in MASTERS.items():
        study.say(f"masters: {name}")
        runs = study.train_all([
            config(data, {**keys, "train.precision": "bf16",
                          "optim.betas": [0.9, BETAS[0]]}, seed, steps)
            for seed in study.seeds])
        ends = [last(m, "val_loss") for m in runs]
        rows.append((name, f"{mean(ends):.3f}",
                     f"{min(ends):.3f}, {max(ends):.3f}"))
    return table(("master weights", "validation loss", "least, most"), rows)


def run(study):
    data = study.bible()
    steps = 8 if study.quick else STEPS
    check(study, data)
    plots, rows = [], []
    for beta in BETAS:
        plot, more = study_beta(study, data, beta, steps)
        plots.append(plot)
        rows += more
    print(table(("second beta", "moments", "validation loss", "least, most",
                 "above fp32's, by seed"), rows))
    print("", study_masters(study, data, steps), sep="\n")
    save(study.path("moments.svg"), *plots)
