#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench-gpu's peer: GPT-2 in PyTorch on one GPU, as nanoGPT trains it.

Usage: nanogpt_peer.py LAYERS HIDDEN HEADS VOCAB SEQ_LEN BATCH MICRO_BATCH
torch.compile, flash attention, bf16 autocast, fused AdamW, clipping; BATCH
sequences a step, MICRO_BATCH at a time. Prints the tokens per second of the
median step.
"""
import os
import statistics
import sys
import time

import torch
from torch import nn

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "bench"))
from torch_peer import GPT  # noqa: E402: the model of the CPU benchmark

STEPS, TIMED = 25, 15  # the first steps compile


def main():
    layers, hidden, heads, vocab, seq_len, batch, micro = map(int,
                                                              sys.argv[1:8])
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = GPT(layers, hidden, heads, vocab, seq_len).cuda()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                                   {"params": rest, "weight_decay": 0.0}],
                                  lr=6e-4, betas=(0.9, 0.95), fused=True)
    compiled = torch.compile(model)
    tokens = torch.randint(vocab, (batch, seq_len + 1)).pin_memory()

    def step():
        for part in tokens.split(micro):
            part = part.cuda(non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = compiled(part[:, :-1], part[:, 1:]) * micro / batch
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    print(round(batch * seq_len / statistics.median(seconds[-TIMED:])))


main()
