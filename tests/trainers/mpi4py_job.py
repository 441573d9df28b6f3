# SPDX-License-Identifier: Apache-2.0
"""mpi4py: MPI's own rank is SLURM_PROCID; the groups are those that Split() makes
of the plan's coordinates."""
import os

import mpi4py
from mpi4py import MPI

from record import AXES, Record, planned_rank

world = MPI.COMM_WORLD
record = Record(mpi4py.__version__, world=world.size)
at = {a: int(os.environ[f"PLAIT_{a.upper()}_RANK"]) for a in AXES}
for axis in ("tp", "cp", "dp", "pp"):
    others = tuple(at[a] for a in ("tp", "cp", "dp", "pp") if a != axis)
    color = sorted(set(world.allgather(others))).index(others)
    group = world.Split(color, at[axis])
    record.group(axis, group.allgather(planned_rank()),
                 group.allreduce(planned_rank()))
weight, rank = 1.0, planned_rank()
for _ in range(3):
    loss = world.allreduce((weight * (1 + rank)) ** 2) / world.size
    gradient = world.allreduce(2 * weight * (1 + rank) ** 2) / world.size
    weight -= 0.01 * gradient
    record.step(loss)
record.write()
