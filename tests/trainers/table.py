# SPDX-License-Identifier: Apache-2.0
"""Hold what the tasks of a step have recorded against the plan, and print the
row of the table: table.py NAME FORM DIR. Exits with 1, and the reason on standard
error, where something differs.
"""
import glob
import json
import math
import os
import sys

AXES = ("tp", "cp", "ep", "dp", "pp")
COLUMNS = ("Framework", "Version", "Form", "RANK is not PROCID", "Rank",
           "World", "Local rank", "Node", "Groups", "Sums", "Three steps")


def members(tasks, name, rank):
    """The planned group of a rank, from the coordinates of all tasks. ep is
    counted inside cp and dp."""
    at = {t["plan"]["RANK"]: t["plan"] for t in tasks}
    axes = name.split("-")
    same = [a for a in ("tp", "pp") if a not in axes]
    if name == "ep":
        wide = [r for r in at if all(at[r][a.upper() + "_RANK"] ==
                                     at[rank][a.upper() + "_RANK"]
                                     for a in same)]
        # The ranks of dp-cp in the plan's order, in runs that have each ep
        # coordinate once.
        return next(run for run in runs(wide, at) if rank in run)
    same += [a for a in ("cp", "dp") if a not in axes]
    return sorted(r for r in at if all(at[r][a.upper() + "_RANK"] ==
                                       at[rank][a.upper() + "_RANK"]
                                       for a in same))


def runs(ranks, at):
    """Split ranks into groups with each ep coordinate once, lowest first."""
    left, found = sorted(ranks), []
    while left:
        run, seen = [], set()
        for rank in list(left):
            if at[rank]["EP_RANK"] not in seen:
                seen.add(at[rank]["EP_RANK"])
                run.append(rank)
                left.remove(rank)
        found.append(run)
    return found


class Judge:
    def __init__(self, tasks):
        self.tasks = tasks
        self.wrong = []

    def hold(self, task, what, got, wanted):
        if got != wanted:
            self.wrong.append(f"rank {task['plan']['RANK']}: {what} is {got}, "
                              f"planned {wanted}")
        return got == wanted

    def ranks(self, name, planned):
        found = [(t, t["ranks"].get(name)) for t in self.tasks]
        if all(got is None for _, got in found):
            return "-"
        return yes(all([self.hold(t, name, got, t["plan"][planned])
                        for t, got in found]))

    def nodes(self):
        """A trainer may count nodes as Slurm does: a host file moves tasks and
        not SLURM_NODEID, and no group follows from it."""
        if (all(t["ranks"].get("node") == t["nodeid"] for t in self.tasks) and
                any(t["nodeid"] != t["plan"]["NODE_RANK"] for t in self.tasks)):
            return "SLURM_NODEID"
        return self.ranks("node", "NODE_RANK")

    def groups(self):
        names = sorted({n for t in self.tasks for n in t["groups"]},
                       key=lambda n: (n.split("-")[0] != n, n))
        same, sums = [], True
        for name in names:
            good = True
            for task in self.tasks:
                wanted = members(self.tasks, name, task["plan"]["RANK"])
                got, total = task["groups"].get(name, (None, None))
                good &= self.hold(task, name, got, wanted)
                sums &= self.hold(task, f"the sum over {name}", total,
                                  float(sum(wanted)))
            same.append(name if good else name + " NO")
        return " ".join(same) or "-", yes(sums) if names else "-"

    def steps(self):
        if not any(t["losses"] for t in self.tasks):
            return "-"
        good = True
        for task in self.tasks:
            losses = task["losses"]
            good &= self.hold(task, "the number of steps", len(losses), 3)
            if not all(map(math.isfinite, losses)) or losses[-1] >= losses[0]:
                good = False
                self.wrong.append(f"rank {task['plan']['RANK']}: losses "
                                  f"{losses}")
        return yes(good)


def yes(good):
    return "yes" if good else "NO"


def main(name, form, folder):
    tasks = []
    for path in glob.glob(os.path.join(folder, "task.*.json")):
        with open(path) as file:
            tasks.append(json.load(file))
    world = tasks[0]["plan"]["WORLD_SIZE"] if tasks else 0
    if not tasks or sorted(t["plan"]["RANK"] for t in tasks) != list(
            range(world)):
        print(f"{name}, {form}: {len(tasks)} of {world} tasks reported",
              file=sys.stderr)
        return 1
    judge = Judge(sorted(tasks, key=lambda t: t["plan"]["RANK"]))
    moved = sum(t["procid"] not in (-1, t["plan"]["RANK"]) for t in tasks)
    groups, sums = judge.groups()
    print("|", " | ".join((
        name, tasks[0]["version"], form, f"{moved} of {world}",
        judge.ranks("rank", "RANK"), judge.ranks("world", "WORLD_SIZE"),
        judge.ranks("local", "LOCAL_RANK"), judge.nodes(),
        groups, sums, judge.steps())), "|")
    for line in judge.wrong[:8]:
        print(f"{name}, {form}: {line}", file=sys.stderr)
    return bool(judge.wrong)


if __name__ == "__main__":
    if sys.argv[1:] == ["head"]:
        print("|", " | ".join(COLUMNS), "|")
        print("|---" * len(COLUMNS) + "|")
    else:
        sys.exit(main(*sys.argv[1:]))
