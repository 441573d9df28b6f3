#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark's peer: the same training step in PyTorch, one step a request.

Usage: torch_peer.py KEY=VALUE ...
    family=gpt2|llama layers hidden heads kv_heads ffn experts top_k vocab
    seq_len batch precision=fp32|bf16 threads mode=eager|compile
    adamw=fused|foreach
Prints "ready NAME"; then answers each line "run" with the seconds of one
training step, and "memory" with the peak resident set in KiB. A compiled model
has made its first step before it is ready.
"""
import contextlib
import math
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


def attention(q, k, v, mask):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return s.masked_fill(mask, -math.inf).softmax(dim=-1) @ v


# -- GPT-2 --------------------------------------------------------------------

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
        y = attention(q, k, v, mask)
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


# -- Llama, and with experts Mixtral ------------------------------------------

class RMSNorm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        return y.type_as(x) * self.weight


class MLP(nn.Module):
    def __init__(self, hidden, ffn):
        super().__init__()
        self.gate_up = nn.Linear(hidden, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Experts(nn.Module):
    def __init__(self, hidden, ffn, experts, top_k):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(MLP(hidden, ffn) for _ in range(experts))

    def forward(self, x):
        rows = x.reshape(-1, x.size(-1))
        share = self.router(rows).float().softmax(dim=-1)
        share, choice = share.topk(self.top_k, dim=-1)
        share = share / share.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            row, slot = torch.where(choice == i)
            y = expert(rows[row]) * share[row, slot, None]
            out.index_add_(0, row, y.to(out.dtype))
        return out.view_as(x)


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden = int(c["hidden"])
        self.heads, self.kv_heads = int(c["heads"]), int(c["kv_heads"])
        self.dim = hidden // self.heads
        rows = (self.heads + 2 * self.kv_heads) * self.dim
        self.norm1, self.norm2 = RMSNorm(hidden), RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, rows, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        ffn, experts = int(c["ffn"]), int(c["experts"])
        self.mlp = (Experts(hidden, ffn, experts, int(c["top_k"]))
                    if experts else MLP(hidden, ffn))

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin),
                         dim=-1).type_as(x)

    def attend(self, x, cos, sin, mask):
        b, t, c = x.shape
        sizes = [n * self.dim
                 for n in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (y.view(b, t, -1, self.dim).transpose(1, 2)
                   for y in self.qkv(x).split(sizes, dim=2))
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        n = self.heads // self.kv_heads
        k, v = (y.repeat_interleave(n, dim=1) for y in (k, v))
        y = attention(q, k, v, mask)
        return self.out(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x, cos, sin, mask):
        x = x + self.attend(self.norm1(x), cos, sin, mask)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, t = int(c["hidden"]), int(c["seq_len"])
        dim = hidden // int(c["heads"])
        self.embed = nn.Embedding(int(c["vocab"]), hidden)
        self.blocks = nn.ModuleList(LlamaBlock(c)
                                    for _ in range(int(c["layers"])))
        self.norm = RMSNorm(hidden)
        self.head = nn.Linear(hidden, int(c["vocab"]), bias=False)
        angle = torch.outer(torch.arange(t).float(),
                            1e4 ** (-torch.arange(0, dim, 2) / dim))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer("mask",
                             torch.ones(t, t, dtype=torch.bool).triu(1))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.mask)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(),
                               targets.flatten())


def make_model(c):
    if c["family"] == "llama":
        return Llama(c)
    return GPT(*(int(c[k])
                 for k in ("layers", "hidden", "heads", "vocab", "seq_len")))


def main():
    c = dict(word.split("=", 1) for word in sys.argv[1:])
    torch.set_num_threads(int(c["threads"]))
    torch.manual_seed(1)
    model = make_model(c)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                                   {"params": rest, "weight_decay": 0.0}],
                                  lr=6e-4, betas=(0.9, 0.95),
                                  **{c["adamw"]: True})
    tokens = torch.randint(int(c["vocab"]),
                           (int(c["batch"]), int(c["seq_len"]) + 1))
    run = torch.compile(model) if c["mode"] == "compile" else model

    def step():
        with (torch.autocast("cpu", dtype=torch.bfloat16)
              if c["precision"] == "bf16" else contextlib.nullcontext()):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    if c["mode"] == "compile":
        step()
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
