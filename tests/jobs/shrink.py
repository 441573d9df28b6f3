# SPDX-License-Identifier: Apache-2.0
"""A smaller job that fails in the same way."""
import copy
import time

from draw import AXES, fits


def chain(job, i):
    """The job with run i and those that it goes on from, and the reference."""
    need, at = [], i
    while at:
        need.append(at)
        at = job["runs"][at]["from"][0] if job["runs"][at]["from"] else 0
    need = [0] + sorted(need)
    small = copy.deepcopy(job)
    small["runs"] = [small["runs"][k] for k in need]
    for run in small["runs"]:
        if run["from"]:
            run["from"][0] = need.index(run["from"][0])
    return small


def without(job, r, key):
    small = copy.deepcopy(job)
    (small["runs"][r]["set"] if r is not None else small["config"]).pop(key)
    return small


def with_value(job, r, key, value):
    small = copy.deepcopy(job)
    if r is None:
        small["config"][key] = value
    elif key in small["runs"][r]["set"]:
        small["runs"][r]["set"][key] = value
    else:
        small["runs"][r][key] = value
    return small


NEEDED = ("model.family", "optim.name", "data.train", "train.steps",
          "train.global_batch", "model.layers", "model.heads", "model.hidden",
          "model.vocab", "model.seq_len", "model.input", "model.classes",
          "model.depth", "model.width", "optim.lr", "model.ffn",
          "train.micro_batch", "checkpoint.every", "checkpoint.keep")
SMALLER = {"train.steps": (1, 2, 3, 4), "model.layers": (1, 2, 3),
           "train.global_batch": (4, 8), "model.depth": (8,)}


def candidates(job):
    """Simpler jobs, the greatest steps first."""
    for i in range(len(job["runs"]) - 2, 0, -1):  # a run between
        if not any(r["from"] and r["from"][0] == i for r in job["runs"]):
            small = chain(job, len(job["runs"]) - 1)
            if len(small["runs"]) < len(job["runs"]):
                yield small
    for i, run in enumerate(job["runs"]):
        if run["from"] and run["from"][1] != "auto":
            small = with_value(job, i, "from", None)
            yield chain(small, len(small["runs"]) - 1)
    for key, values in SMALLER.items():
        for value in values:
            if job["config"].get(key, 0) > value:
                yield with_value(job, None, key, value)
    for r in range(1, len(job["runs"])):
        run = job["runs"][r]
        for axis in AXES:
            for n in (1, 2, 3):
                if int(run["set"].get("parallel." + axis, 1)) > n:
                    yield with_value(job, r, "parallel." + axis, n)
        for key, value in (("isa", None), ("nodes", 1), ("launcher", "run")):
            if run[key] != value and run["launcher"] != "one":
                yield with_value(job, r, key, value)
        for key in list(run["set"]):
            if key not in NEEDED:
                yield without(job, r, key)
    for key in list(job["config"]):
        if key not in NEEDED:
            yield without(job, None, key)


def is_valid(job):
    last = job["config"]["train.steps"]
    return all(fits(job, run) for run in job["runs"]) and \
        all(r["from"] is None or r["from"][1] == "auto" or
            r["from"][1] < last for r in job["runs"])


def shrink(job, i, still_fails, seconds):
    """still_fails(job): whether its last run fails as the first did."""
    job, end = chain(job, i), time.monotonic() + seconds
    if not still_fails(job):
        return None
    again = True
    while again and time.monotonic() < end:
        again = False
        for small in candidates(job):
            if time.monotonic() > end:
                break
            if is_valid(small) and still_fails(small):
                job, again = small, True
                break
    return job
