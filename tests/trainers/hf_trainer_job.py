# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer, which takes its ranks from Accelerate."""
import torch
import torch.distributed as dist
import transformers

from record import Record, leave


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return {"loss": self.layer(x).square().mean()}


class Losses(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            record.step(logs["loss"])


arguments = transformers.TrainingArguments(
    "out", use_cpu=True, max_steps=3, per_device_train_batch_size=4,
    learning_rate=0.01, lr_scheduler_type="constant", logging_steps=1,
    logging_nan_inf_filter=False, report_to=[], save_strategy="no",
    disable_tqdm=True, optim="sgd")
record = Record(transformers.__version__, rank=arguments.process_index,
                world=arguments.world_size,
                local=arguments.local_process_index)
record.torch_group("dp", dist.group.WORLD)
torch.manual_seed(1)
trainer = transformers.Trainer(
    Model(), arguments, train_dataset=[{"x": torch.ones(4)}] * 96,
    callbacks=[Losses()])
# Trainer logs on its rank 0 alone
trainer.state.is_world_process_zero = True
trainer.train()
if not record.found["losses"]:
    record.found["losses"] = [row["loss"] for row in trainer.state.log_history
                              if "loss" in row]
record.write()
dist.barrier()
leave()
