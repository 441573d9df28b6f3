#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark's peer for images: steps of a CIFAR ResNet of 6 n + 2 layers
(He et al., section 4.2, with convolutions as shortcuts) in PyTorch.

Usage: torch_resnet.py DEPTH BATCH THREADS
Prints "ready NAME"; then answers each line "run" with the seconds of one
training step, and "memory" with the peak resident set in KiB. Of the two
layouts of images in memory it takes the one that is faster in a few steps.
"""
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = None
        if stride > 1 or before != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, width, 1, stride, bias=False),
                nn.BatchNorm2d(width))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        blocks, before = [], 16
        for group in range(3):
            for i in range((depth - 2) // 6):
                blocks.append(Block(before, 16 << group,
                                    2 if group and i == 0 else 1))
                before = 16 << group
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        return self.head(self.blocks(x).mean((2, 3)))


def make_step(depth, batch, layout):
    torch.manual_seed(1)
    model = ResNet(depth).to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(batch, 3, 32, 32).to(memory_format=layout)
    labels = torch.randint(10, (batch,))

    def step():
        start = time.perf_counter()
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        return time.perf_counter() - start
    return step


def main():
    depth, batch, threads = map(int, sys.argv[1:4])
    torch.set_num_threads(threads)
    steps = [make_step(depth, batch, layout)
             for layout in (torch.channels_last, torch.contiguous_format)]
    step = min(steps, key=lambda s: min(s() for _ in range(4)))
    print("ready PyTorch", torch.__version__, flush=True)
    for line in sys.stdin:
        if line.strip() == "memory":
            usage = resource.getrusage(resource.RUSAGE_SELF)
            print(usage.ru_maxrss, flush=True)
            continue
        print(step(), flush=True)


if __name__ == "__main__":
    main()
