# SPDX-License-Identifier: Apache-2.0
"""Accelerate: its ranks, the mesh of the variables that `plait plan --format
accelerate` prints, and steps on data that it spreads."""
import accelerate
import torch
import torch.distributed as dist
from accelerate import Accelerator, PartialState
from accelerate.parallelism_config import ParallelismConfig

from record import Record, leave

state = PartialState(cpu=True)
record = Record(accelerate.__version__, rank=state.process_index,
                world=state.num_processes, local=state.local_process_index)
config = ParallelismConfig()
if config.total_size > 1:
    mesh = config.build_device_mesh("cpu")
    for name, axis in (("tp", "tp"), ("cp", "cp"), ("dp", "dp_shard")):
        if axis in mesh.mesh_dim_names:
            record.torch_group(name, mesh[axis].get_group())
else:
    record.torch_group("dp", dist.group.WORLD)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    model, optimizer, data = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.01),
        torch.utils.data.DataLoader(torch.ones(12 * state.num_processes, 4),
                                    batch_size=4))
    for batch in data:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        record.step(loss)
record.write()
dist.barrier()
leave()
