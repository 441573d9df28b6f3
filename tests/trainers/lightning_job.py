# SPDX-License-Identifier: Apache-2.0
"""Lightning by its command line, as examples/lightning.sbatch starts it: DDP, or
the mesh of ModelParallelStrategy."""
import lightning
import torch
import torch.distributed as dist
from lightning import LightningModule
from lightning.pytorch.cli import LightningCLI

from record import Record, leave


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.losses = []

    def configure_model(self):
        mesh = self.device_mesh
        if mesh is None:
            return
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import (ColwiseParallel,
                                                       parallelize_module)

        parallelize_module(self.layer, mesh["tensor_parallel"],
                           ColwiseParallel())
        fully_shard(self.layer, mesh=mesh["data_parallel"])

    def training_step(self, batch, _):
        loss = self.layer(batch).square().mean()
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.ones(96, 4), batch_size=4)


torch.manual_seed(1)
cli = LightningCLI(Module, run=False, seed_everything_default=1,
                   save_config_callback=None, trainer_defaults={
                       "accelerator": "cpu", "max_steps": 3, "logger": False,
                       "enable_checkpointing": False,
                       "enable_progress_bar": False,
                       "enable_model_summary": False})
cli.trainer.fit(cli.model)
trainer = cli.trainer
record = Record(lightning.__version__, rank=trainer.global_rank,
                world=trainer.world_size, local=trainer.local_rank,
                node=trainer.node_rank)
mesh = cli.model.device_mesh
if mesh is None:
    record.torch_group("dp", dist.group.WORLD)
else:
    record.torch_group("tp", mesh["tensor_parallel"].get_group())
    record.torch_group("dp", mesh["data_parallel"].get_group())
for loss in cli.model.losses:
    record.step(loss)
record.write()
dist.barrier()
leave()
