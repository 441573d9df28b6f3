# SPDX-License-Identifier: Apache-2.0
# MPI ranks are Slurm's; the layout's groups come from the launch contract.
import os

from mpi4py import MPI

world = MPI.COMM_WORLD
assert world.rank == int(os.environ["SLURM_PROCID"])
planned = int(os.environ["PLAIT_RANK"])
tp = world.Split(planned // int(os.environ["PLAIT_TP_SIZE"]),
                 int(os.environ["PLAIT_TP_RANK"]))
assert tp.rank == int(os.environ["PLAIT_TP_RANK"])
nodes = tp.allgather(os.environ["SLURMD_NODENAME"])
assert len(set(nodes)) == 1, "a tp group spans nodes"
total = world.allreduce(planned)
if world.rank == 0:
    with open("result", "w") as f:
        print(world.size, tp.size, total, file=f)
