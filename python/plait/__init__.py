# SPDX-License-Identifier: Apache-2.0
"""Plait's plan in Python.

    import plait
    plait.init()                   # torch.distributed, by the launch contract
    mesh = plait.mesh()            # torch's DeviceMesh, the planned groups
    plait.groups("tp")             # their ranks, without torch

    plait.plan(tp=8, pp=2, nodes="n[1-4]", tasks_per_node=8)
    plait.estimate("job.yaml", gpus=64, gpu_type="h100", tp=8)
    plait.checkpoint.load("checkpoints")      # numpy or torch tensors
    plait.metrics("run.jsonl")                # rows for pandas

torch and numpy are imported by what needs them. Errors are plait.Error: one
line.
"""
from . import checkpoint
from .command import estimate, plan
from .errors import Error
from .launch import Contract
from .launch import read as contract
from .layout import Layout
from .records import Metrics, metrics
from .torch_mesh import group, groups, init, mesh
from .version import __version__

__all__ = ["Contract", "Error", "Layout", "Metrics", "__version__",
           "checkpoint", "contract", "estimate", "group", "groups", "init",
           "mesh", "metrics", "plan"]
