# SPDX-License-Identifier: Apache-2.0
"""What a trainer says of a task: its ranks, its groups, the sum over each, the
losses of its steps. table.py holds it against the plan.
"""
import json
import os

AXES = ("tp", "cp", "ep", "dp", "pp")


def planned_rank():
    return int(os.environ["PLAIT_RANK"])


def sizes():
    return {a: int(os.environ[f"PLAIT_{a.upper()}_SIZE"]) for a in AXES}


class Record:
    """`ranks` are the trainer's own numbers: rank, world, local, node."""

    def __init__(self, version, **ranks):
        self.found = {"version": version, "ranks": ranks, "groups": {},
                      "losses": []}

    def group(self, name, ranks, total):
        """The members of this task's group, as the trainer numbers them, and
        the sum of their planned ranks that the trainer made."""
        self.found["groups"][name] = [sorted(map(int, ranks)), float(total)]

    def torch_group(self, name, group):
        import torch
        import torch.distributed as dist

        total = torch.tensor([float(planned_rank())])
        dist.all_reduce(total, group=group)
        self.group(name, dist.get_process_group_ranks(group), total)

    def step(self, loss):
        if hasattr(loss, "detach"):
            loss = loss.detach()
        self.found["losses"].append(float(loss))

    def write(self):
        self.found["plan"] = {name: int(os.environ["PLAIT_" + name]) for name in
                              ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK",
                               *(a.upper() + "_RANK" for a in AXES),
                               *(a.upper() + "_SIZE" for a in AXES))}
        for name in ("procid", "nodeid"):
            self.found[name] = int(os.environ.get("SLURM_" + name.upper(), -1))
        own = f"task.{planned_rank()}.json"
        with open(own + ".new", "w") as out:
            json.dump(self.found, out)
        os.rename(own + ".new", own)


def leave():
    """Without the aborts of torch's threads when Python exits."""
    import sys

    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
