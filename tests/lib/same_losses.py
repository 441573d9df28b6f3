# SPDX-License-Identifier: Apache-2.0
"""Compare each loss of two runs and the last step's gradient norm, which
stands for the weights, within the bound of the parity matrix.
usage: same_losses.py METRICS METRICS STEPS"""
import json
import sys


def rows(path):
    return [json.loads(line) for line in open(path)]


def same(x, y):
    return abs(x - y) <= 2e-5 * abs(x)


a, b, n = rows(sys.argv[1]), rows(sys.argv[2]), int(sys.argv[3])
for x, y in zip(a, b):
    if not same(x["loss"], y["loss"]) or x["step"] != y["step"]:
        sys.exit("step %d: %r, %r" % (x["step"], x["loss"], y["loss"]))
if not len(a) == len(b) == n:
    sys.exit("%d and %d steps of %d" % (len(a), len(b), n))
if not same(a[-1]["grad_norm"], b[-1]["grad_norm"]):
    sys.exit("step %d: gradient norms %r, %r" %
             (n, a[-1]["grad_norm"], b[-1]["grad_norm"]))
