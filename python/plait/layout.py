# SPDX-License-Identifier: Apache-2.0
"""The arithmetic between ranks, coordinates and groups.

It is that of topology/layout/layout.c, in Python because a container of a
trainer need not have libplait. tests/python holds one against the other.
"""
from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Tuple

from .errors import Error

AXES = ("tp", "cp", "ep", "dp", "pp")
_MOST = 1048576  # of a size, and of the world

# The axes that vary inside a group, and whether ranks are read with experts.
GROUPS: Dict[str, Tuple[Tuple[str, ...], bool]] = {
    "tp": (("tp",), False),
    "cp": (("cp",), False),
    "ep": (("ep",), True),
    "dp": (("dp",), False),
    "pp": (("pp",), False),
    "dp-cp": (("dp", "cp"), False),
    "expert-dp": (("dp",), True),
    "tp-pp": (("tp", "pp"), False),
}


class Layout:
    """How many ranks there are along each axis, and which varies fastest.

    ``sizes`` has a number for each of AXES; ``order`` is a text such as
    "tp-cp-ep-dp-pp", leftmost fastest. The world is tp * cp * dp * pp; ep
    divides cp * dp, because experts are spread over those ranks.
    """

    def __init__(self, sizes: Mapping[str, int],
                 order: str = "-".join(AXES)) -> None:
        names = order.split("-")
        if sorted(names) != sorted(AXES):
            raise Error(f'rank order "{order}" must have each of tp, cp, ep, '
                        "dp and pp once, as in tp-cp-ep-dp-pp")
        self.sizes: Dict[str, int] = {a: int(sizes.get(a, 1)) for a in AXES}
        self.order: Tuple[str, ...] = tuple(names)
        for axis, size in self.sizes.items():
            if not 1 <= size <= _MOST:
                raise Error(f"the size of {axis} is {size}; it must be from 1 "
                            f"to {_MOST}")
        self.world = (self.sizes["tp"] * self.sizes["cp"] * self.sizes["dp"] *
                      self.sizes["pp"])
        if self.world > _MOST:
            raise Error(f"{self.world} tasks; there can be up to {_MOST}")
        self._check_experts()

    def _check_experts(self) -> None:
        over = self.sizes["cp"] * self.sizes["dp"]
        ep = self.sizes["ep"]
        if over % ep:
            raise Error(f"cp * dp = {self.sizes['cp']} * {self.sizes['dp']} "
                        f"is not divisible by ep = {ep}")
        dense, expert = self.strides(False), self.strides(True)
        for axis in ("tp", "pp"):
            if ep > 1 and self.sizes[axis] > 1 and dense[axis] != expert[axis]:
                raise Error(f"with ep = {ep}, cp, ep and dp must be "
                            f"neighbours in the rank order, which is "
                            f"{'-'.join(self.order)}")

    def counts(self, experts: bool = False) -> Dict[str, int]:
        """The sizes whose product is the world.

        Without experts ep is 1; with them cp is part of dp, and ep is taken
        out of it.
        """
        sizes = dict(self.sizes)
        if experts:
            sizes["dp"] = sizes["cp"] * sizes["dp"] // sizes["ep"]
            sizes["cp"] = 1
        else:
            sizes["ep"] = 1
        return sizes

    def strides(self, experts: bool = False) -> Dict[str, int]:
        """The distance between neighbours along each axis."""
        counts, strides, stride = self.counts(experts), {}, 1
        for axis in self.order:
            strides[axis] = stride
            stride *= counts[axis]
        return strides

    def coordinates(self, rank: int) -> Dict[str, int]:
        """Where a rank is along each axis, from 0."""
        if not 0 <= rank < self.world:
            raise Error(f"rank {rank} is none of 0 to {self.world - 1}")
        found = {}
        for axis in AXES:
            experts = axis == "ep"
            found[axis] = (rank // self.strides(experts)[axis] %
                           self.counts(experts)[axis])
        return found

    def groups(self, name: str) -> List[List[int]]:
        """All groups of that name, each with its ranks, ascending.

        The names are the axes, "dp-cp" (the ranks that sum gradients of dense
        weights), "expert-dp" (the same of experts) and "tp-pp" (one copy of
        the dense model).
        """
        if name not in GROUPS:
            raise Error(f'no group is called "{name}"; there are '
                        f"{', '.join(GROUPS)}")
        if name == "expert-dp" and self.sizes["ep"] == 1:
            name = "dp-cp"  # every rank has all experts
        axes, experts = GROUPS[name]
        counts, strides = self.counts(experts), self.strides(experts)
        found: Dict[int, List[int]] = {}
        for rank in range(self.world):
            first = rank
            for axis in axes:
                first -= rank // strides[axis] % counts[axis] * strides[axis]
            found.setdefault(first, []).append(rank)
        return list(found.values())

    def mesh(self, experts: bool = False) -> Tuple[List[str], List[int],
                                                   List[int]]:
        """A mesh of all ranks: its axes, their sizes, and the ranks.

        The axes are in the rank order, slowest first, without ep; with
        ``experts``, cp is part of "expert_dp" instead. The ranks are listed
        with the last axis fastest: of any one axis, those that differ along it
        alone are a planned group.
        """
        spread = experts and self.sizes["ep"] > 1
        counts, strides = self.counts(spread), self.strides(spread)
        names, offsets = [], []
        for axis in reversed(self.order):
            steps = [k * strides[axis] for k in range(counts[axis])]
            if axis == ("cp" if experts else "ep"):
                continue
            if experts and axis == "dp":
                axis = "expert_dp"
                steps = sorted(at + k * strides["cp"] for at in steps
                               for k in range(counts["cp"]))
            names.append(axis)
            offsets.append(steps)
        ranks = [0]
        for steps in offsets:
            ranks = [rank + step for rank in ranks for step in steps]
        return names, [len(steps) for steps in offsets], ranks


def own_group(groups: Sequence[Sequence[int]], rank: int) -> List[int]:
    """The one of the groups that has the rank."""
    return list(next(g for g in groups if rank in g))
