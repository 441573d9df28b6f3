# SPDX-License-Identifier: Apache-2.0
"""What must be equal in two runs of a job, and how far.

Rounding differs from layout to layout. How much of it a job makes visible it
shows itself: the reference runs again with another micro-batch and with other
instructions, and a layout may deviate TIMES as far as the worst of these, or by
FLOOR. So a job that amplifies rounding does not fail, and one that does not is
held to FLOOR."""
import glob
import json
import math
import os
import struct
import sys
from array import array

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "parity"))
from parity import place

TIMES = 10
TIMES_OTHER = 3  # the same of one whose ranks send bf16, and of one in fp32
FLOOR = {"loss": 2e-5, "val_loss": 2e-5, "grad_norm": 1e-4, "weights": 1e-4,
         "state": 1e-3, "accuracy": 0}
# Narrow numbers round where a layout cuts, which another micro-batch does not.
# Where that is exceeded the whole job is made in fp32, too, and must be right
# there. Two ways to round are about as far from each other as from fp32: a
# router's choice can hang on it (seed 20499), or a sign (seed 21408).
HALF_FLOOR = {"loss": 2e-2, "val_loss": 2e-2, "grad_norm": 2e-1,
              "weights": 2e-1, "state": 1, "accuracy": 0.2}
# Gradients that are sent as bf16 (parallel.grad_reduce), and differences that
# are sent as codes (sync.gradients).
SENT_FLOOR = {"loss": 1e-3, "val_loss": 1e-3, "grad_norm": 1e-2,
              "weights": 5e-2, "state": 5e-2, "accuracy": 0.05}
# A block of 8-bit codes lies elsewhere in another layout.
CODES_FLOOR = {"loss": 1e-4, "val_loss": 1e-4, "grad_norm": 1e-2,
               "weights": 5e-2, "state": 1, "accuracy": 0.05}
# Where a moment is nearly half way between two of bf16 (optim.moments), rounding
# of the sum decides.
MOMENTS_FLOOR = {"loss": 1e-4, "val_loss": 1e-4, "grad_norm": 1e-3,
                 "weights": 1e-3, "state": 1e-2, "accuracy": 0.05}
# Where a slope or a choice jumps, rounding decides now and then: ReLU, routers.
JUMP_FLOOR = {"loss": 1e-4, "val_loss": 1e-4, "grad_norm": 1e-2,
              "weights": 1e-2, "state": 5e-2, "accuracy": 0.05}
EXACT = ("lr", "global_batch", "tokens", "loss_tokens", "skipped", "outlier")
SMALL = 1e-3  # of the largest tensor, below which one counts as so large


def floor(config, sent, proved=False):
    """The bounds of a job where rounding is not amplified; sent: gradients
    were sent as bf16 before; proved: and the whole job is right in fp32."""
    floors = [FLOOR]
    if config.get("train.precision", "fp32") != "fp32" or sent and proved:
        floors.append(HALF_FLOOR)
    if config["optim.name"] == "adamw8bit":
        floors.append(CODES_FLOOR)
    if config.get("optim.moments", "fp32") != "fp32":
        floors.append(MOMENTS_FLOOR)
    if sent or "sync.gradients" in config:
        floors.append(SENT_FLOOR)
    if config["model.family"] in ("mlp", "resnet") or \
            "model.experts" in config:
        floors.append(JUMP_FLOOR)
    return {kind: max(f[kind] for f in floors) for kind in FLOOR}


def tensors(path):
    """{name: fp32 values} of a checkpoint: weights, states, replicas."""
    whole = {}
    for shard in glob.glob(path + "/*.safetensors"):
        with open(shard, "rb") as f:
            size = struct.unpack("<Q", f.read(8))[0]
            head, body = json.loads(f.read(size)), f.read()
        for name, p in json.loads(head["__metadata__"]["plait"]).items():
            if head[name]["dtype"] != "F32":
                continue
            begin, end = head[name]["data_offsets"]
            rows, cols = p["shape"]
            to = whole.setdefault(name, array("f", [math.nan]) * (rows * cols))
            place(to, p, array("f", body[begin:end]))
    return whole


def last_checkpoint(folder):
    return (sorted(glob.glob(folder + "/ck/step-*[0-9]")) or [""])[-1]


def is_compared(name):
    """Not a key's bias, whose gradient is 0 but for rounding, nor bases, whose
    vectors may point either way, and what is kept in them."""
    return not (name.endswith("attention.k.bias") or "_basis." in name or
                "_square." in name)


def norm(values):
    return math.sqrt(math.fsum(x * x for x in values))


def apart(got, want):
    """The worst tensor's |a - b| / |b|."""
    if got.keys() != want.keys():
        return math.inf
    most = max(map(norm, want.values()), default=0) * SMALL
    worst = 0.0
    for name, b in want.items():
        a = got[name]
        if len(a) != len(b):
            return math.inf
        diff = norm(x - y for x, y in zip(a, b))
        if not math.isfinite(diff):
            return math.inf
        if diff:
            worst = max(worst, diff / max(norm(b), most, 1e-30))
    return worst


def kinds(all_tensors, soap):
    """Weights, and states by kind: numbers of one kind have a scale."""
    out = {}
    for name, values in all_tensors.items():
        if not is_compared(name):
            continue
        kind = name.split(".")[1] if name.startswith("optim.") else \
            name.split(".")[0] if name.startswith(("replica.", "sync.")) else \
            "weights"
        if not (soap and kind in ("m", "v")):
            out.setdefault(kind, {})[name] = values
    return out


def numbers(line):
    """The metrics of a step that are compared with a bound."""
    out = {k: line[k] for k in ("loss", "grad_norm", "val_loss", "accuracy")
           if line.get(k) is not None}
    for name, value in (line.get("val_loss_sets") or {}).items():
        out["val_loss of " + name] = value
    return out


def lines(got, want):
    """Deviations of two runs' metrics in the steps that both have, and what
    differs that must not."""
    worst, wrong = {}, []
    for step in sorted(got.keys() & want.keys()):
        a, b = numbers(got[step]), numbers(want[step])
        if a.keys() != b.keys():
            wrong.append(f"step {step} has {sorted(a.keys() ^ b.keys())} in "
                         "one of both")
        for key in EXACT:
            x, y = got[step].get(key), want[step].get(key)
            if x != y and not (isinstance(x, float) and isinstance(y, float)
                               and abs(x - y) <= 1e-6 * abs(y)):
                wrong.append(f"step {step}: {key} {x}, not {y}")
        for key in a.keys() & b.keys():
            scale = 1 if key == "accuracy" else max(abs(b[key]), 1e-6)
            kind = key.split(" ")[0]
            worst[kind] = max(worst.get(kind, 0), abs(a[key] - b[key]) / scale)
    return worst, wrong


class Kept:
    """What is compared of a run that has ended."""

    def __init__(self, result, folder, config):
        self.lines = result.lines
        self.tensors = kinds(tensors(last_checkpoint(folder)),
                             config["optim.name"] == "soap")


def deviations(got, want, whole=True):
    """How far run `got` is from `want`; whole: its end, too."""
    worst, wrong = lines(got.lines, want.lines)
    if not whole:
        return worst, wrong
    if got.tensors.keys() != want.tensors.keys():
        wrong.append("other tensors: "
                     f"{sorted(got.tensors.keys() ^ want.tensors.keys())}")
    for kind in got.tensors.keys() & want.tensors.keys():
        what = "weights" if kind == "weights" else "state"
        worst[what] = max(worst.get(what, 0),
                          apart(got.tensors[kind], want.tensors[kind]))
    return worst, wrong


def judge(worst, probes, floors, others=()):
    """What is above its bound, as texts; others: probes that send bf16, or are
    in fp32."""
    bad = []
    for kind, value in worst.items():
        most = max([floors[kind]] +
                   [TIMES * p.get(kind, 0) for p in probes] +
                   [TIMES_OTHER * p.get(kind, 0) for p in others])
        if not value <= most:
            bad.append(f"{kind} deviates by {value:.1e}, of {most:.1e} at "
                       "most")
    return bad
