# SPDX-License-Identifier: Apache-2.0
"""steps to a target loss against batch size, and the critical batch

An MLP on scikit-learn's digits, plain SGD, batches from 1 to nearly all 1,437
images. For each batch the rate is tuned as Shallue et al. do (arXiv
1811.03600): the best of a budget of rates, spread log-uniformly. Beside it
what the rate that is best at batch 16 does when it stays, and when it follows
the batch or its square root. The gradient noise scale (McCandlish et al.,
arXiv 1812.06162) is measured on the way.
"""
import math

from plot import Plot, save
from study import Failure, diverged, mean, median, steps_to, table

LETTER = "a"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1280)
BASE = 16            # the batch that the rules start from
METERS = (16, 64, 256)  # the batches of the trainings with the meter
VALIDATION = 256     # images; divides batches, or they it
TARGET = 0.2         # validation loss
BUDGET = 16          # rates tried for each batch
RATES = (0.03, 6.0)  # between these
BEST = 3             # of the rates: tried with every seed
MOST = 8000          # steps at batch 1
RULES = {"rate as it is": None, "rate by the square root": "sqrt",
         "rate by the batch": "linear"}
MODEL = {
    "model.family": "mlp", "model.layers": 1, "model.width": 32,
    "model.classes": 10, "model.input": [1, 8, 8], "optim.name": "sgd",
    "optim.momentum": 0, "optim.weight_decay": 0, "optim.clip": 0,
    "lr.schedule": "constant", "lr.warmup": 0,
}


def spread_out(i):
    """The i-th number of van der Corput's sequence, in 0 .. 1."""
    return int(f"{i:b}"[::-1], 2) / 2 ** i.bit_length()


def rates(budget):
    low, high = RATES
    return [low * (high / low) ** spread_out(i) for i in range(1, budget + 1)]


def config(data, batch, rate, steps, seed, every=None):
    """every: steps between evaluations [a hundredth of all]"""
    return {**MODEL, **data, "train.global_batch": batch,
            "train.micro_batch": min(batch, 256), "train.steps": steps,
            "train.seed": seed, "train.eval_every": every or seldom(steps),
            "train.eval_steps": max(1, VALIDATION // batch),
            "optim.lr": rate}


def seldom(steps):
    return max(1, steps // 100)


def reached(metrics):
    """Steps to the target; infinity where it is not reached."""
    steps = None if diverged(metrics) else \
        steps_to(metrics, "val_loss", TARGET)
    return steps or math.inf


def tune(study, data, batch, most, budget):
    """(steps of each seed, rate, steps between evaluations): the least median
    of the best few rates."""
    tried = rates(budget)
    first = [reached(m) for m in study.train_all(
        [config(data, batch, rate, most, 1) for rate in tried])]
    few = sorted(zip(first, tried))[:BEST]
    again = study.train_all([config(data, batch, rate, most, seed)
                             for _, rate in few for seed in study.seeds[1:]])
    count = len(study.seeds) - 1
    ways = [([steps] + [reached(m) for m in again[count * i:count * (i + 1)]],
             rate, seldom(most)) for i, (steps, rate) in enumerate(few)]
    return min(ways, key=lambda way: (median(way[0]), way[1]))


def tune_all(study, data, batches, most, budget):
    out = {}
    for batch in batches:
        out[batch] = tune(study, data, batch, most, budget)
        steps, rate, _ = out[batch]
        study.say(f"batch {batch}: {median(steps)} steps, rate {rate:.3g}")
        if median(steps) < math.inf:
            # More data in a step never costs more steps.
            most = math.ceil(1.5 * median(steps))
    return out


def follow(study, data, tuned):
    """{rule: {batch: steps of each seed}}"""
    out = {}
    for rule, scaling in RULES.items():
        out[rule] = {}
        keys = {"lr.base_batch": BASE, "lr.scaling": scaling} \
            if scaling else {}
        for batch, (_, _, every) in tuned.items():
            most = 4 * max(median(tuned[b][0]) for b in (batch, BASE))
            runs = study.train_all(
                [{**config(data, batch, tuned[BASE][1], int(most), seed,
                          every),
                  **keys} for seed in study.seeds])
            out[rule][batch] = [reached(m) for m in runs]
        study.say(f"{rule}: {[median(s) for s in out[rule].values()]}")
    return out


def measure_noise(study, data, tuned):
    """{batch: the meter's first, median and last value on the way to the
    target, means over the seeds}"""
    out = {}
    for batch in METERS:
        if batch not in tuned or median(tuned[batch][0]) == math.inf:
            continue
        steps, rate, every = tuned[batch]
        most = int(2 * median(steps))
        rows = []
        for metrics in study.train_all(
                [{**config(data, batch, rate, most, seed, every),
                  "train.micro_batch": batch // 8} for seed in study.seeds]):
            end = min(reached(metrics), most)
            seen = [line["noise_scale"] for line in metrics
                    if line["step"] <= end and line["noise_scale"]]
            rows += [(seen[0], median(seen), seen[-1])] if seen else []
        if rows:
            out[batch] = [mean(column) for column in zip(*rows)]
    if not out:
        raise Failure("the noise scale was not measured")
    return out


def fit(tuned):
    """(least steps, critical batch) of steps = least (1 + critical / batch),
    by least squares of the logarithms."""
    points = [(b, math.log(median(s))) for b, (s, *_) in tuned.items()
              if median(s) < math.inf]
    best = None
    for i in range(400):
        critical = 1.02 ** i
        rest = [y - math.log(1 + critical / b) for b, y in points]
        error = sum((r - mean(rest)) ** 2 for r in rest)
        if best is None or error < best[0]:
            best = (error, math.exp(mean(rest)), critical)
    return best[1:]


def cell(steps):
    return f"{median(steps):.0f}" if median(steps) < math.inf else "never"


def show(study, tuned, rules, noise):
    least, critical = fit(tuned)
    print(table(
        ("batch", "tuned rate", "steps", "least, most", "images",
         *(f"steps, {rule}" for rule in rules)),
        [(batch, f"{rate:.3g}", cell(steps), f"{min(steps)}, {max(steps)}",
          median(steps) * batch, *(cell(rules[r][batch]) for r in rules))
         for batch, (steps, rate, _) in tuned.items()]))
    print(f"\nsteps = {least:.1f} (1 + {critical:.0f} / batch) fits best: "
          f"the critical batch is {critical:.0f}. The meter:\n")
    print(table(
        ("batch", "noise scale at the start", "median", "at the target"),
        [(batch, *(f"{v:.0f}" for v in row)) for batch, row in noise.items()]))
    plot = Plot(f"Steps to a validation loss of {TARGET}", "batch", "steps",
                x_log=2, y_log=10)
    plot.line("tuned rate", [(b, number(s)) for b, (s, *_) in tuned.items()],
              [(min(s), finite_most(s)) for s, *_ in tuned.values()])
    for rule, found in rules.items():
        plot.line(rule, [(b, number(s)) for b, s in found.items()])
    first = next(iter(tuned))
    perfect = median(tuned[first][0]) * first
    plot.line("perfect scaling",
              [(b, perfect / b) for b in tuned if perfect / b > least / 2],
              dash=True, marks=False)
    plot.upright(critical, f"critical batch by the fit: {critical:.0f}")
    middle = median([row[1] for row in noise.values()])
    plot.upright(middle, f"noise scale by the meter: {middle:.0f}")
    save(study.path("batch_size.svg"), plot)


def number(steps):
    return median(steps) if median(steps) < math.inf else None


def finite_most(steps):
    return max((s for s in steps if s < math.inf), default=math.inf)


def check(study, data):
    """By construction: scaling changes nothing at the base batch, and a
    batch of 4 times the base has 4 and 2 times its rate."""
    for batch, factors in ((BASE, (1, 1)), (4 * BASE, (4, 2))):
        for scaling, factor in zip(("linear", "sqrt"), factors):
            lines = study.train({**config(data, batch, 0.1, 3, 1),
                                 "lr.base_batch": BASE,
                                 "lr.scaling": scaling})
            if any(abs(x["lr"] - 0.1 * factor) > 1e-6 for x in lines):
                raise Failure(f"rate {lines[0]['lr']} at batch {batch}, "
                              f"scaling {scaling}")


def run(study):
    data = study.digits(VALIDATION)
    batches, most, budget = (BATCHES, MOST, BUDGET) if not study.quick else \
        ((16, 64, 256), 600, 4)
    check(study, data)
    tuned = tune_all(study, data, batches, most, budget)
    if median(tuned[BASE][0]) == math.inf:
        raise Failure(f"no rate reaches the target at batch {BASE}")
    rules = follow(study, data, tuned)
    show(study, tuned, rules, measure_noise(study, data, tuned))
