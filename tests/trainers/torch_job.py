# SPDX-License-Identifier: Apache-2.0
"""PyTorch: env:// as torchrun's, and DistributedDataParallel; or with MESH, the
lines of docs/migrate.md, FSDP2 on the mesh that they make."""
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import plait
from record import Record, leave

torch.manual_seed(1)
model = torch.nn.Linear(4, 2)
if "MESH" in os.environ:
    exec(os.environ["MESH"])
else:
    dist.init_process_group("gloo")
    plait.init()
    mesh = plait.mesh()
    model = torch.nn.parallel.DistributedDataParallel(model)
record = Record(torch.__version__, rank=dist.get_rank(),
                world=dist.get_world_size(),
                local=int(os.environ["LOCAL_RANK"]),
                node=int(os.environ["GROUP_RANK"])
                if "GROUP_RANK" in os.environ else None)
for axis in mesh.mesh_dim_names:
    record.torch_group(axis, mesh[axis].get_group())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.full((2, 4), 1 + dist.get_rank() / 8)
for _ in range(3):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    record.step(loss)
record.write()
dist.barrier()
leave()
