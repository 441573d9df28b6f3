# SPDX-License-Identifier: Apache-2.0
"""What the law can ask of an optimizer that steps by signs.

Lion's step of an element is -lr (sign(c) + wd w), where c = b1 m + (1 - b1) g.
Where the gradients of micro-batches cancel, rounding alone decides whether c
is above or below 0, or is 0: g of one element in 160,000 of the Llama is
-2.5e-11 at the first step, 1e-8 of its tensor's mean square, and changes its
sign when one process adds the same sequences one by one. That weight is then
2 lr away, and moves the gradients of its neighbours.

So an element is free where one process had a |c| of at most MARGIN of the
tensor's root mean square in some step: it may have gone either way. All others
keep the bound of every optimizer. Those that are free stay within the steps
that they can have made, and few of them differ. The rate in matrix.py is so
small that a weight which went the other way moves other gradients by less
than MARGIN.
"""
import math

MARGIN = 1e-4
FREE = 1e-4  # of a model's elements differ, at most


def undecided(momenta, betas):
    """{name: indices of free elements}, from {name: m} after each step of one
    process."""
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
    """(got where it is decided, with want's numbers elsewhere; how far free
    elements are apart as a share of what their steps allow; the share of
    elements that are free and differ). `rates`: of each step."""
    reach = 2 * sum(rates) * 1.001  # weight decay shrinks, rounding adds
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
