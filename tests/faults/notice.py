# SPDX-License-Identifier: Apache-2.0
"""Measures how soon a run reports that one of its ranks is hurt, and whether
it names the right one."""
import os
import re
import time


def rank_of(pid):
    """The rank of a process, from its launcher's environment; None for a spare
    rank or a process that has ended."""
    try:
        with open(f"/proc/{pid}/environ") as f:
            env = dict(s.split("=", 1) for s in f.read().split("\0") if "=" in s)
    except OSError:
        return None
    if env.get("PLAIT_SPARE", "0") != "0":
        return None
    for name in ("PLAIT_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if name in env:
            return env[name]
    return "0"


class Notice:
    """Created just before `pid` is hurt; None: the network is hurt. Sets
    case.noted: seconds until the run reported it, and whether it named the
    right rank."""

    def __init__(self, case, run, pid):
        self.case, self.run, self.pid = case, run, pid
        self.rank = rank_of(pid) if pid else None
        self.begin = time.monotonic()

    def age(self):
        return time.monotonic() - self.begin

    def line(self, pattern, why):
        """Wait for a line of the run's output with `pattern`; None if the run
        ends without one."""
        def find():
            return re.search(f"^.*{pattern}.*$", self.run.text(), re.M)
        self.run.until(find, why, 0.02)
        found = find()
        return found and found.group()

    def note(self, line, pattern, **more):
        self.case.noted = {"noticed": round(self.age(), 3),
                           "named": re.search(pattern, line) is not None,
                           **more}

    def of_loss(self):
        """A rank was killed: note the first line about its process."""
        who = rf"\([^()]*\bprocess {self.pid}\b|\bPID {self.pid}\b"
        line = self.line(who, "it is noticed")
        if line:
            self.note(line, rf"\brank {self.rank or '(?!)'} |spare rank \(")

    def of_hang(self, limit):
        """A rank hangs: note the report of train.timeout. With a link down no
        rank may be blamed."""
        if self.pid and self.rank is None:
            return  # no rank waits for a spare one
        line = self.line("has not ended for", "it is noticed")
        who = rf"rank {self.rank} \([^()]*\bprocess {self.pid}\) is stopped"
        if not self.pid:
            who = ("all ranks that are known have entered|ranks wait for each"
                   "|links are down")
        self.note(line or "", rf"\(train\.timeout\): ({who})", limit=limit)
