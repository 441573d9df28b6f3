#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark's peer: the same GPT-2 step in PyTorch, one step a request.

Usage: torch_peer.py LAYERS HIDDEN HEADS VOCAB SEQ_LEN BATCH PRECISION THREADS
Prints "ready NAME"; then answers each line "run" with the seconds of one
training step, and "memory" with the peak resident set in KiB.
"""
import contextlib
import math
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.ln2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def attend(self, x, mask):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(x).split(c, dim=2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
            y = s.masked_fill(mask, -math.inf).softmax(dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x, mask):
        x = x + self.attend(self.ln1(x), mask)
        return x + self.down(F.gelu(self.up(self.ln2(x)),
                                    approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, hidden, heads, vocab, seq_len):
        super().__init__()
        self.wte = nn.Embedding(vocab, hidden)
        self.wpe = nn.Embedding(seq_len, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads)
                                    for _ in range(layers))
        self.ln = nn.LayerNorm(hidden)
        self.register_buffer("mask", torch.ones(
            seq_len, seq_len, dtype=torch.bool).triu(1))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits = F.linear(self.ln(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(),
                               targets.flatten())


def main():
    layers, hidden, heads, vocab, seq_len, batch = map(int, sys.argv[1:7])
    precision, threads = sys.argv[7], int(sys.argv[8])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = GPT(layers, hidden, heads, vocab, seq_len)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                                   {"params": rest, "weight_decay": 0.0}],
                                  lr=6e-4, betas=(0.9, 0.95))
    tokens = torch.randint(vocab, (batch, seq_len + 1))

    def step():
        with (torch.autocast("cpu", dtype=torch.bfloat16)
              if precision == "bf16" else contextlib.nullcontext()):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    print("ready PyTorch", torch.__version__, flush=True)
    for line in sys.stdin:
        if line.strip() == "memory":
            usage = resource.getrusage(resource.RUSAGE_SELF)
            print(usage.ru_maxrss, flush=True)
            continue
        start = time.perf_counter()
        step()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
