# SPDX-License-Identifier: Apache-2.0
"""Ray Train in a planned task: Ray numbers its workers itself, whatever the
task's RANK and MASTER_ADDR say, and a worker takes no plan for its own."""
import json
import os
import sys
import tempfile

import ray
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchConfig, TorchTrainer

folder = sys.argv[1]


def train(config):
    import torch
    import torch.distributed as dist

    import plait

    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    try:
        plait.init()
        refused = ""
    except plait.Error as why:
        refused = str(why)
    with open(f"{config}/ray.{dist.get_rank()}", "w") as out:
        json.dump([get_context().get_world_rank(), dist.get_world_size(),
                   float(total), refused], out)


with tempfile.TemporaryDirectory() as own:
    ray.init(num_cpus=4, include_dashboard=False, _temp_dir=own,
             log_to_driver=False, object_store_memory=100 << 20)
    TorchTrainer(train, train_loop_config=folder,
                 torch_config=TorchConfig(backend="gloo"),
                 scaling_config=ScalingConfig(num_workers=3),
                 run_config=RunConfig(storage_path=own)).fit()
    ray.shutdown()
found = [json.load(open(f"{folder}/ray.{rank}")) for rank in range(3)]
assert [row[:3] for row in found] == [[r, 3, 3.0] for r in range(3)], found
assert all(row[3] for row in found), found
print(ray.__version__, found[0][3])
