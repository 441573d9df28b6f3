# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed, with the arguments of examples/deepspeed.sbatch: its topology of
pipelines, and an engine with ZeRO. With what `plait plan --format deepspeed` prints
in its configuration, the groups that the engine makes of that."""
import argparse
import json
import os

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import groups
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
with open(args.deepspeed_config) as file:
    layout = json.load(file)
tensor, expert = (layout.get(name, {}) for name in
                  ("tensor_parallel", "expert_parallel"))
sequence = layout.get("sequence_parallel_size", 1)
if not tensor and not expert and sequence == 1:
    size = sizes()
    grid = PipelineParallelGrid(PipeModelDataParallelTopology(
        size["pp"], size["tp"], size["dp"]))
    for name, group in (("pp", grid.get_pipe_parallel_group()),
                        ("dp", grid.get_data_parallel_group()),
                        ("tp", grid.get_slice_parallel_group())):
        record.torch_group(name, group)
torch.manual_seed(1)
shape = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16,
         "num_hidden_layers": 1, "num_attention_heads": 2,
         "num_key_value_heads": 2, "tie_word_embeddings": False}
if tensor:
    import transformers

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape))
    x = torch.arange(16).reshape(2, 8)
elif expert:
    from transformers.models.mixtral import modeling_mixtral as mixtral

    # Not in a whole model: DeepSpeed 0.19.8 fails at transformers 5.24's list of
    # the outputs that one records.
    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config = mixtral.MixtralConfig(**shape, num_local_experts=4)
            layer = torch.nn.Module()
            layer.mlp = mixtral.MixtralSparseMoeBlock(self.config)
            for weight in layer.mlp.parameters():
                torch.nn.init.normal_(weight)
            self.model = torch.nn.Module()
            self.model.layers = torch.nn.ModuleList([layer])

        def forward(self, x):
            return self.model.layers[0].mlp(x)

    model = Experts()
    x = torch.randn(2, 8, 16)
else:
    model = torch.nn.Linear(4, 1)
    x = torch.full((2, 4), 1 + dist.get_rank() / 8)
engine, *_ = deepspeed.initialize(args=args, model=model,
                                  model_parameters=model.parameters())
if tensor:
    record.torch_group("tp", groups.get_tensor_model_parallel_group())
    record.torch_group("dp", groups.get_data_parallel_group())
if sequence > 1:
    record.torch_group("cp", groups._get_sequence_parallel_group())
    record.torch_group("dp", groups._get_data_parallel_group())
if expert:
    record.torch_group("ep", groups._get_expert_parallel_group(
        f"ep_size_{expert['autoep_size']}"))
for _ in range(3):
    loss = (engine(input_ids=x, labels=x).loss if tensor
            else engine(x).square().mean())
    engine.backward(loss)
    engine.step()
    record.step(loss)
record.write()
dist.barrier()
leave()
