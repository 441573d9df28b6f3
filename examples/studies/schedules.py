# SPDX-License-Identifier: Apache-2.0
"""schedule-free AdamW against cosine and wsd; Muon's variants and QK-clip

A small GPT-2 reads a text by AdamW with a cosine, with warmup-stable-decay and
with a constant rate, and by schedule-free AdamW (Defazio et al., arXiv
2405.15682), each at the best of its rates; the schedules are also run for a
half and a quarter of the steps, where the schedule-free run is only read off.
Then Muon: its polynomials (The Polar Express, arXiv 2505.16932), its matrices
whole or by heads, and QK-clip (Kimi K2, arXiv 2507.20534) at a high rate.
"""
import math

from plot import Plot, save
from study import Failure, diverged, last, mean, table

LETTER = "j"
STEPS, SEQUENCES = 240, 16
TEXT = {
    "model.family": "gpt2", "model.layers": 2, "model.hidden": 64,
    "model.heads": 4, "model.vocab": 257, "model.seq_len": 64,
    "train.global_batch": SEQUENCES, "train.micro_batch": SEQUENCES,
    "train.eval_steps": 16, "optim.weight_decay": 0.1,
    "optim.betas": [0.9, 0.95], "log.every": 1,
}
SCHEDULES = {
    "cosine": {"lr.schedule": "cosine"},
    "wsd": {"lr.schedule": "wsd", "lr.stable": 0.8},
    "constant": {"lr.schedule": "constant"},
    "schedule-free": {"lr.schedule": "constant",
                      "optim.name": "schedulefree"},
}
RATES = (0.002, 0.004, 0.008, 0.016, 0.032)
MUON = {"optim.name": "muon", "optim.momentum": 0.95, "optim.nesterov": True,
        "lr.schedule": "cosine"}
EXPRESS = {"optim.muon_coefficients": "polar-express"}
HEADS = {"optim.muon_heads": True}
VARIANTS = {"muon": {}, "polar-express": EXPRESS, "by heads": HEADS,
            "both": {**EXPRESS, **HEADS}}
MUON_RATES = (0.016, 0.032, 0.064, 0.128)
HIGH, TAU = 0.256, 10


def config(data, keys, rate, seed, steps):
    return {**TEXT, **data, **keys, "optim.lr": rate, "train.seed": seed,
            "train.steps": steps, "train.eval_every": max(1, steps // 4),
            "lr.warmup": max(1, steps // 12)}


def end_of(metrics):
    return math.inf if diverged(metrics) else last(metrics, "val_loss")


def tune(study, data, keys, rates, steps):
    """(rate, metrics of each seed): the rates by seed 1."""
    first = study.train_all([config(data, keys, rate, 1, steps)
                             for rate in rates])
    ends = [end_of(m) for m in first]
    best = ends.index(min(ends))
    study.say(", ".join(f"{end:.3f} at {rate:g}"
                        for rate, end in zip(rates, ends)))
    return rates[best], ends, [first[best]] + study.train_all(
        [config(data, keys, rates[best], seed, steps)
         for seed in study.seeds[1:]])


def seen(runs, step):
    """The validation losses after that many steps."""
    return [line["val_loss"] for m in runs for line in m
            if line["step"] == step and "val_loss" in line]


def text_of(losses):
    return f"{mean(losses):.3f} ({min(losses):.3f} to {max(losses):.3f})" \
        if losses else "diverged"


def study_schedules(study, data, rates, steps):
    plot = Plot(f"GPT-2 on a text, {steps} steps", "learning rate",
                "validation loss", x_log=2)
    rows = []
    for name, keys in SCHEDULES.items():
        study.say(name)
        rate, ends, runs = tune(study, data, keys, rates, steps)
        plot.line(name, [(r, end if end < 3.5 else None)
                         for r, end in zip(rates, ends)])
        shorter = []
        for part in (4, 2):
            if name in ("constant", "schedule-free"):  # as the run passes it
                shorter.append(seen(runs, steps // part))
            else:
                again = study.train_all([
                    config(data, keys, rate, seed, steps // part)
                    for seed in study.seeds])
                shorter.append([end_of(m) for m in again])
        rows.append((name, f"{rate:g}", *map(text_of, shorter),
                     text_of(seen(runs, steps))))
    return plot, table(("AdamW with", "best rate", f"{steps // 4} steps",
                        f"{steps // 2} steps", f"{steps} steps"), rows)


def study_muon(study, data, rates, steps):
    plot = Plot(f"Muon, {steps} steps", "learning rate", "validation loss",
                x_log=2)
    rows = []
    for name, keys in VARIANTS.items():
        study.say(name)
        rate, ends, runs = tune(study, data, {**MUON, **keys}, rates, steps)
        plot.line(name, [(r, end if end < 3.5 else None)
                         for r, end in zip(rates, ends)])
        rows.append((name, f"{rate:g}", text_of(seen(runs, steps // 2)),
                     text_of(seen(runs, steps))))
    return plot, table(("Muon", "best rate", f"{steps // 2} of {steps} steps",
                        f"{steps} steps"), rows)


def study_clip(study, data, steps):
    """A tau that no logit reaches shows how large they get."""
    rows = []
    for name, tau in (("without", 1e6), (f"tau {TAU}", TAU)):
        runs = study.train_all([
            config(data, {**MUON, "optim.qk_clip": tau}, HIGH, seed, steps)
            for seed in study.seeds])
        peaks = [max(line["max_logit"] for line in m) for m in runs]
        above = [sum(line["max_logit"] > TAU for line in m) for m in runs]
        rows.append((name, f"{mean(peaks):.1f}", f"{max(peaks):.1f}",
                     f"{mean(above):.0f}", text_of([end_of(m) for m in runs])))
    return table(("QK-clip", "largest logit, mean of the seeds", "most",
                  f"steps above {TAU}", "validation loss"), rows)


def check(study, data):
    """By construction: a tau that no logit reaches changes nothing."""
    plain = config(data, MUON, 0.01, 1, 4)
    one, two = study.train_all([plain, {**plain, "optim.qk_clip": 1e6}])
    if any(a["loss"] != b["loss"] for a, b in zip(one, two)):
        raise Failure("QK-clip changes a run whose logits are below tau")


def run(study):
    data = study.bible()
    few, steps = study.quick, 8 if study.quick else STEPS
    check(study, data)
    rates, first = study_schedules(study, data, RATES[1:2] if few else RATES,
                                   steps)
    muon, second = study_muon(study, data,
                              MUON_RATES[1:2] if few else MUON_RATES, steps)
    print(first, second, study_clip(study, data, steps), sep="\n\n")
    save(study.path("schedules.svg"), rates, muon)
