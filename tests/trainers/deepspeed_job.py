# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed, with the arguments of examples/deepspeed.sbatch: its topology of
pipelines, and an engine with ZeRO."""
import argparse
import os

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.pipe.topology import (PipelineParallelGrid,
                                             PipeModelDataParallelTopology)

from record import Record, leave, sizes

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int)  # of DeepSpeed's launcher
args = parser.parse_args()
deepspeed.init_distributed("gloo", verbose=False)
record = Record(deepspeed.__version__, rank=deepspeed.comm.get_rank(),
                world=deepspeed.comm.get_world_size(),
                local=deepspeed.comm.get_local_rank())
if "PLAIT_ORDER" in os.environ:
    size = sizes()
    grid = PipelineParallelGrid(PipeModelDataParallelTopology(
        size["pp"], size["tp"], size["dp"]))
    for name, group in (("pp", grid.get_pipe_parallel_group()),
                        ("dp", grid.get_data_parallel_group()),
                        ("tp", grid.get_slice_parallel_group())):
        record.torch_group(name, group)
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    args=args, model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
x = torch.full((2, 4), 1 + dist.get_rank() / 8)
for _ in range(3):
    loss = engine(x).square().mean()
    engine.backward(loss)
    engine.step()
    record.step(loss)
record.write()
dist.barrier()
leave()
