# SPDX-License-Identifier: Apache-2.0
"""torchtitan: its own parser reads what `plait plan --format torchtitan` prints,
and its ParallelDims makes the meshes. Its trainer wants a GPU."""
import importlib.metadata
import os
import sys

import torch.distributed as dist
import torchtitan.distributed.parallel_dims as dims
from torchtitan.config import ConfigManager

from record import Record, leave

dims.device_type = "cpu"  # which it takes for a GPU where there is none
dist.init_process_group("gloo")
config = ConfigManager().parse_args(
    ["--module=llama3", "--config=llama3_debugmodel", *sys.argv[1:]])
record = Record(importlib.metadata.version("torchtitan"),
                rank=dist.get_rank(), world=dist.get_world_size(),
                local=int(os.environ["LOCAL_RANK"]))
made = dims.ParallelDims.from_config(config.parallelism, dist.get_world_size())
made.build_mesh()
for name, axis in (("tp", "tp"), ("cp", "cp"), ("pp", "pp"), ("dp", "batch"),
                   ("ep", "ep")):
    mesh = made.get_optional_mesh(axis)
    if mesh is not None:
        record.torch_group(name, mesh.get_group())
record.write()
dist.barrier()
leave()
