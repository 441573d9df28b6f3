# SPDX-License-Identifier: Apache-2.0
"""DiLoCo's outer step as its formula says, from what checkpoints hold: lists of
numbers, in double precision but for what is sent."""
import math
import struct

# Bits of the significand, the least unit, and the factor before rounding.
FORMS = {"bf16": (8, -133, 1), "fp8": (3, -16, 4096)}


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def sent(x, form):
    """x in the form of sync.gradients."""
    x = single(x)
    if form == "fp32":
        return x
    bits, least, factor = FORMS[form]
    unit = 2.0 ** max(math.frexp(x * factor)[1] - bits, least)
    return round(x * factor / unit) * unit / factor # ties to even


def step(common, momentum, replicas, form, lr, mu):
    """The common model and its momentum after the replicas have met."""
    after = []
    for x, m, w in zip(common, momentum, zip(*replicas)):
        g = sum(sent(one - x, form) for one in w) / len(w)
        m = mu * m + g
        after.append((x + lr * (g + mu * m), m))
    return [list(part) for part in zip(*after)]


def deviation(got, want, before):
    """|got - want| / |want - before|"""
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want)) /
                     sum((b - c) ** 2 for b, c in zip(want, before)))
