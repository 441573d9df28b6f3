# SPDX-License-Identifier: Apache-2.0
"""The launch contract: what a task of a planned step finds in its environment.

The variables are those of spank_plait(8), and the checks those of
topology/layout/launch.c: a contract that plait-train refuses is refused here.
"""
from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional

from .errors import Error
from .layout import AXES, Layout, own_group

_MOST = 2**31 - 1
# The longest texts that the runtime takes.
_TEXTS = {"PLAIT_GPU_BUSID": 15, "PLAIT_NICS": 255, "PLAIT_CPUS": 1023,
          "PLAIT_JOBID": 63, "PLAIT_SECRET": 64, "MASTER_ADDR": 255}
_START = ('start it with "srun --dp=auto ... python train.py" in Slurm, or '
          'with "plait run --np N --dp=auto -- python train.py"')


@dataclass(frozen=True)
class Contract:
    """The place of this process in the plan."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    nodes: int
    layout: Layout
    coordinates: Dict[str, int]
    gpu: int  # its index on the node; -1: this task has none
    gpu_busid: str
    nics: List[str]
    cpus: str
    jobid: str  # "job.step"
    master_addr: str  # "" where the step has no rendezvous
    master_port: int

    def groups(self, name: str) -> List[List[int]]:
        """All groups of that name, each with its ranks."""
        return self.layout.groups(name)

    def group(self, name: str) -> List[int]:
        """The ranks of this process's group of that name."""
        return own_group(self.layout.groups(name), self.rank)


def _number(env: Mapping[str, str], name: str, least: int) -> int:
    text = env.get(name)
    if text is None:
        raise Error(f"{name} is not set, though PLAIT_RANK is")
    # int() takes no text of thousands of digits, zeros before them included.
    digits = re.fullmatch(r"(-?)0*([0-9]{1,10})", text, re.ASCII)
    number = int(digits[1] + digits[2]) if digits else least - 1
    if not least <= number <= _MOST:
        raise Error(f"{name}={text[:40]} must be a whole number >= {least}")
    return number


def _check_unplanned(env: Mapping[str, str]) -> None:
    """Whether srun planned this step, and the tasks were started without it."""
    plan = env.get("SLURM_PLAIT_PLAN")
    flags = env.get("SLURM_PLAIT_FLAGS")
    if plan and plan != "none":
        raise Error("srun planned this step, but PLAIT_RANK is not set: this "
                    "node lacks Slurm's plait plugin (see plait doctor)")
    if plan is None and flags and "SLURM_STEP_ID" in env:
        raise Error(f"the job was submitted with the flags {flags[:60]}, but "
                    "this step has no plan: the node of its srun lacks "
                    "Slurm's plait plugin (see plait doctor); unset "
                    "SLURM_PLAIT_FLAGS to start without a plan")


def _check_places(c: Contract) -> None:
    if (c.rank >= c.world_size or c.local_rank >= c.local_world_size or
            c.node_rank >= c.nodes):
        raise Error(f"rank {c.rank} of {c.world_size}, local rank "
                    f"{c.local_rank} of {c.local_world_size}, node rank "
                    f"{c.node_rank} of {c.nodes}: a rank must be less than "
                    "its size")
    # Ranks are dealt node by node, and every node has at least one.
    first = c.rank - c.local_rank
    after = c.world_size - first - c.local_world_size
    if first < c.node_rank or after < c.nodes - 1 - c.node_rank:
        raise Error(f"PLAIT_RANK={c.rank} does not go with PLAIT_LOCAL_RANK="
                    f"{c.local_rank} of {c.local_world_size} on node "
                    f"{c.node_rank} of {c.nodes}")
    for axis, at in c.layout.coordinates(c.rank).items():
        if at != c.coordinates[axis]:
            raise Error(f"PLAIT_RANK={c.rank} has {axis} coordinate {at} in "
                        "this layout, but the environment says "
                        f"{c.coordinates[axis]}")


def _read_layout(env: Mapping[str, str], world: int) -> Layout:
    layout = Layout({a: _number(env, f"PLAIT_{a.upper()}_SIZE", 1)
                     for a in AXES}, env.get("PLAIT_ORDER", ""))
    if layout.world != world:
        sizes = " ".join(f"--{a}={n}" for a, n in layout.sizes.items() if n > 1)
        raise Error(f"{sizes or '--dp=1'} does not make {world} tasks")
    return layout


def _check_texts(env: Mapping[str, str]) -> None:
    for name, most in _TEXTS.items():
        if len(os.fsencode(env.get(name, ""))) > most:
            raise Error(f"{name} is longer than {most} characters")
    if not re.fullmatch(r"|none|[0-9a-f]{32,64}", env.get("PLAIT_SECRET", "")):
        raise Error("PLAIT_SECRET must be 32 to 64 hex digits, or none")


def _read_master(env: Mapping[str, str]) -> int:
    if not env.get("MASTER_ADDR"):
        return 0
    port = _number(env, "MASTER_PORT", 1)
    if port > 65535:
        raise Error(f"MASTER_PORT={port} must be from 1 to 65535")
    return port


def read(environ: Optional[Mapping[str, str]] = None) -> Optional[Contract]:
    """The contract of this process, or of ``environ``.

    None: the process was not started under a plan. Error: the variables
    contradict each other, or the step was to be planned and was not.
    """
    env = os.environ if environ is None else environ
    if "PLAIT_RANK" not in env:
        _check_unplanned(env)
        return None
    _check_texts(env)
    world = _number(env, "PLAIT_WORLD_SIZE", 1)
    found = Contract(
        rank=_number(env, "PLAIT_RANK", 0),
        world_size=world,
        local_rank=_number(env, "PLAIT_LOCAL_RANK", 0),
        local_world_size=_number(env, "PLAIT_LOCAL_WORLD_SIZE", 1),
        node_rank=_number(env, "PLAIT_NODE_RANK", 0),
        nodes=_number(env, "PLAIT_NNODES", 1),
        layout=_read_layout(env, world),
        coordinates={a: _number(env, f"PLAIT_{a.upper()}_RANK", 0)
                     for a in AXES},
        gpu=_number(env, "PLAIT_GPU", -1),
        gpu_busid=env.get("PLAIT_GPU_BUSID", ""),
        nics=[n for n in env.get("PLAIT_NICS", "").split(",") if n],
        cpus=env.get("PLAIT_CPUS", ""),
        jobid=env.get("PLAIT_JOBID", ""),
        master_addr=env.get("MASTER_ADDR", ""),
        master_port=_read_master(env))
    _check_places(found)
    return found


def need(what: str) -> Contract:
    """The contract, which the function ``what`` cannot do without."""
    found = read()
    if found is None:
        raise Error(f"{what}: this process was not started under a plan "
                    f"(PLAIT_RANK is not set): {_START}")
    return found
