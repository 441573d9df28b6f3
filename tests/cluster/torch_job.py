# SPDX-License-Identifier: Apache-2.0
# A torchrun-less PyTorch job: every number below comes from the environment.
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
local = int(os.environ["LOCAL_RANK"])
assert rank == int(os.environ["PLAIT_RANK"]), "RANK is not the planned one"
assert rank % int(os.environ["LOCAL_WORLD_SIZE"]) == local

torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    x = torch.full((2, 4), float(rank + step))
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
weights = [torch.zeros(4) for _ in range(world)]
dist.all_gather(weights, model.module.weight.detach().flatten())
assert all(torch.equal(w, weights[0]) for w in weights), "replicas differ"
nodes = [None] * world
dist.all_gather_object(nodes, os.environ["SLURMD_NODENAME"])
if rank == 0:
    with open("result", "w") as f:
        print(world, int(total), *nodes, file=f)
# RANK 0 holds the store: no rank may leave while another one uses it.
dist.barrier()
dist.destroy_process_group()
# Everything is done: PyTorch 1.13 sometimes aborts when Python exits
# ("terminate called without an active exception").
os._exit(0)
