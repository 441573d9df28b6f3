# SPDX-License-Identifier: Apache-2.0
"""Megatron-core, with the arguments that examples/megatron-lm.sbatch gives to
pretrain_gpt.py: its groups, and a column and a row parallel layer."""
import argparse
import os

import megatron.core
import torch
import torch.distributed as dist
from megatron.core import parallel_state as state
from megatron.core.model_parallel_config import ModelParallelConfig
from megatron.core.tensor_parallel import (ColumnParallelLinear,
                                           RowParallelLinear)

from record import Record, leave

parser = argparse.ArgumentParser()
for axis in ("tensor-model", "pipeline-model", "context", "expert-model"):
    parser.add_argument(f"--{axis}-parallel-size", type=int, default=1)
parser.add_argument("--use-tp-pp-dp-mapping", action="store_true")
parser.add_argument("--distributed-backend")
args = parser.parse_args()
dist.init_process_group("gloo")
state.initialize_model_parallel(
    args.tensor_model_parallel_size, args.pipeline_model_parallel_size,
    context_parallel_size=args.context_parallel_size,
    expert_model_parallel_size=args.expert_model_parallel_size,
    # as megatron/training/initialize.py has it
    order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp")
record = Record(megatron.core.__version__, rank=dist.get_rank(),
                world=dist.get_world_size(),
                local=int(os.environ["LOCAL_RANK"]))
for name, group in (
        ("tp", state.get_tensor_model_parallel_group()),
        ("pp", state.get_pipeline_model_parallel_group()),
        ("cp", state.get_context_parallel_group()),
        ("dp", state.get_data_parallel_group()),
        ("dp-cp", state.get_data_parallel_group(with_context_parallel=True)),
        ("ep", state.get_expert_model_parallel_group())):
    record.torch_group(name, group)

config = ModelParallelConfig(
    tensor_model_parallel_size=args.tensor_model_parallel_size,
    use_cpu_initialization=True, gradient_accumulation_fusion=False,
    params_dtype=torch.float32)
torch.manual_seed(1)
layers = [
    ColumnParallelLinear(8, 16, config=config, gather_output=False, bias=False,
                         init_method=torch.nn.init.xavier_normal_),
    RowParallelLinear(16, 8, config=config, input_is_parallel=True, bias=False,
                      skip_bias_add=True,
                      init_method=torch.nn.init.xavier_normal_)]
weights = [w for layer in layers for w in layer.parameters()]
x = torch.randn(4, 2, 8)
for _ in range(3):
    y = x
    for layer in layers:
        y = layer(y)[0]
    loss = (y - x).square().mean()
    loss.backward()
    with torch.no_grad():
        for w in weights:
            dist.all_reduce(w.grad, group=state.get_data_parallel_group())
            w -= 0.05 / state.get_data_parallel_world_size() * w.grad
            w.grad = None
    record.step(loss)
record.write()
dist.barrier()
leave()
