# SPDX-License-Identifier: Apache-2.0
"""The bounds for an optimizer that steps by signs.

Lion's step of an element is -lr (sign(c) + wd w), where c = b1 m + (1 - b1) g.
Where the gradients of micro-batches cancel, only rounding decides whether c is
above, below or equal to 0: one element of 160,000 of the Llama has g =
-2.5e-11 at the first step, 1e-8 of its tensor's mean square, and its sign
changes when one process adds the same sequences one by one. That weight then
differs by 2 lr, and changes the gradients of its neighbours.

So an element is free if in some step of one process its |c| was at most MARGIN
times the tensor's root mean square: it may have gone either way. All others
are within the bound of every optimizer. Free elements must be within the steps
that they can have made, and few of them may differ. The rate in matrix.py is
so small that a weight which went the other way changes other gradients by less
than MARGIN.
"""
import math

MARGIN = 1e-4
FREE = 1e-4  # the largest share of a model's elements that may differ


def undecided(momenta, betas):
    """{name: indices of free elements}, from one process's {name: m} after
    each step."""
    free, before = {}, None
    for after in momenta:
        for name, m in after.items():
            old = before[name] if before else [0.0] * len(m)
            # g = (m - b2 old) / (1 - b2)
            rate = (1 - betas[0]) / (1 - betas[1])
            keep = betas[0] - rate * betas[1]
            c = [keep * a + rate * b for a, b in zip(old, m)]
            bound = MARGIN * math.sqrt(math.fsum(x * x for x in c) / len(c))
            free.setdefault(name, set()).update(
                i for i, x in enumerate(c) if abs(x) <= bound)
        before = after
    return free


def judge(got, want, free, rates):
    """Return `got` with want's numbers for free elements; how far free
    elements differ, relative to what their steps allow; the share of elements
    that are free and differ. rates: of each step."""
    reach = 2 * sum(rates) * 1.001  # 1.001: weight decay and rounding
    worst, moved, total, kept = 0.0, 0, 0, {}
    for name, b in want.items():
        a = kept[name] = got[name][:]
        total += len(a)
        for i in free[name]:
            apart = abs(a[i] - b[i])
            worst = max(worst, apart / reach)
            moved += apart > 0
            a[i] = b[i]
    return kept, worst, moved / total
