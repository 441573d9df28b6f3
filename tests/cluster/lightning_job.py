# SPDX-License-Identifier: Apache-2.0
# Lightning as examples/lightning.sbatch starts it: its rank is the planned one,
# and three steps of DDP end alike on all ranks.
import os
import sys

import torch
from lightning import LightningModule, Trainer

sizes = dict(word.split("=") for word in sys.argv[1:3])


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


trainer = Trainer(
    accelerator="cpu", strategy="ddp", max_steps=3, logger=False,
    enable_checkpointing=False, enable_progress_bar=False,
    num_nodes=int(sizes["--trainer.num_nodes"]),
    devices=int(sizes["--trainer.devices"]))
torch.manual_seed(1)
data = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=1)
module = Module()
trainer.fit(module, data)
for mine, planned in ((trainer.global_rank, "PLAIT_RANK"),
                      (trainer.world_size, "PLAIT_WORLD_SIZE"),
                      (trainer.local_rank, "PLAIT_LOCAL_RANK"),
                      (trainer.node_rank, "PLAIT_NODE_RANK")):
    assert mine == int(os.environ[planned]), (planned, mine)
total = trainer.strategy.reduce(torch.tensor(float(trainer.global_rank)),
                                reduce_op="sum")
if trainer.global_rank == 0:
    with open("result", "w") as out:
        print(trainer.world_size, int(total), trainer.global_step, file=out)
trainer.strategy.barrier()
os._exit(0)
