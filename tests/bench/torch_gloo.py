#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark's peer for two processes: PyTorch over gloo.

Usage: torch_gloo.py reduce MB   prints "ready NAME"; then answers each line
                                 with the seconds of one all-reduce
       torch_gloo.py start       prints "collective T" and "step T": when the
                                 first all-reduce and the first step of a small
                                 model under DDP were done, T of the monotonic
                                 clock
"""
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


def reduce(rank, mb):
    a = torch.zeros(int(mb * 1e6 / 4))
    times = 20 if mb < 4 else 1
    if rank == 0:
        print("ready PyTorch", torch.__version__, flush=True)
    while True:
        more = torch.zeros(1)
        if rank == 0 and sys.stdin.readline():
            more[0] = 1
        try:
            dist.broadcast(more, 0)
        except RuntimeError:
            return  # the driver has ended rank 0
        if not more[0]:
            return
        dist.barrier()
        start = time.monotonic()
        for _ in range(times):
            dist.all_reduce(a)
        if rank == 0:
            print(f"{(time.monotonic() - start) / times:.9f}", flush=True)


def say(rank, what):
    if rank == 0:
        print(f"{what} {time.monotonic():.6f}", flush=True)


def start(rank):
    dist.all_reduce(torch.ones(1))
    say(rank, "collective")
    hidden, vocab = 128, 257
    layers = [nn.Embedding(vocab, hidden)]
    layers += [nn.TransformerEncoderLayer(hidden, 4, 4 * hidden,
                                          batch_first=True) for _ in range(2)]
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(*layers, nn.Linear(hidden, vocab)))
    optim = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(vocab, (2, 65))
    loss = nn.functional.cross_entropy(
        model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optim.step()
    say(rank, "step")


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    # Fork before there are threads: each process imports what torch loads
    # lazily.
    rank = 0 if os.fork() else 1
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=2)
    if sys.argv[1] == "reduce":
        reduce(rank, float(sys.argv[2]))
    else:
        start(rank)


main()
