# SPDX-License-Identifier: Apache-2.0
# Horovod over MPI: its ranks are Slurm's; the planned ones are in PLAIT_*.
import os

import horovod.torch as hvd
import torch

hvd.init()
rank, world = hvd.rank(), hvd.size()
assert hvd.mpi_built() and hvd.mpi_enabled()
assert rank == int(os.environ["SLURM_PROCID"])
assert world == int(os.environ["PLAIT_WORLD_SIZE"])
assert hvd.local_size() == int(os.environ["PLAIT_LOCAL_WORLD_SIZE"])

torch.manual_seed(rank)
model = torch.nn.Linear(4, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01),
    named_parameters=model.named_parameters())
first = model.weight.detach().clone()
for step in range(5):
    x = torch.full((2, 4), float(rank + step))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
weights = hvd.allgather(model.weight.detach())
assert weights.shape == (world, 4)
assert all(torch.equal(w, weights[0]) for w in weights), "replicas differ"
assert not torch.equal(first, model.weight.detach()), "nothing was learned"
planned = torch.tensor([float(os.environ["PLAIT_RANK"])])
total = hvd.allreduce(planned, op=hvd.Sum)
order = hvd.allgather(planned).int().tolist()
assert sorted(order) == list(range(world))
if rank == 0:
    with open("result", "w") as f:
        print(world, int(total), file=f)
hvd.shutdown()
