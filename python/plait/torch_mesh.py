# SPDX-License-Identifier: Apache-2.0
"""init(), mesh() and group(): torch.distributed along the plan."""
from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .launch import Contract, need
from .errors import Error

# By torch's world, whose groups end with it.
_made: Dict[Tuple[Any, ...], Tuple[Any, Any]] = {}


def _torch(what: str) -> Any:
    try:
        import torch
        import torch.distributed
    except ImportError as why:
        if getattr(why, "name", None) != "torch":
            raise Error(f"{what}: torch cannot be imported: {why}") from None
        raise Error(f"{what} needs torch: pip install torch") from None
    if not torch.distributed.is_available():
        raise Error(f"{what}: this torch was built without torch.distributed")
    return torch


def _check_joined(what: str, contract: Contract, dist: Any) -> None:
    """A process that another launcher's variables have led elsewhere would
    take part in other groups than the planned ones, without a word."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if (rank, world) != (contract.rank, contract.world_size):
        raise Error(f"{what}: torch.distributed is initialized as rank {rank} "
                    f"of {world}, and the plan says rank {contract.rank} of "
                    f"{contract.world_size}: call plait.init() instead of "
                    "init_process_group()")


def _local_gpu(contract: Contract) -> int:
    """CUDA_VISIBLE_DEVICES is in the order of LOCAL_RANK; a task that sees a
    single GPU has LOCAL_RANK 0, and PLAIT_LOCAL_RANK stays the task's."""
    text = os.environ.get("LOCAL_RANK", "")
    return int(text) if text.isdigit() else contract.local_rank


def _set_device(torch: Any, contract: Contract) -> None:
    if contract.gpu < 0 or not torch.cuda.is_available():
        return
    at, n = _local_gpu(contract), torch.cuda.device_count()
    if at >= n:
        raise Error(f"plait.init(): LOCAL_RANK={at}, but this task sees {n} "
                    f"GPU{'s' if n != 1 else ''}: let CUDA_VISIBLE_DEVICES be "
                    "as srun set it")
    torch.cuda.set_device(at)


def init(backend: Optional[str] = None,
         timeout: Union[timedelta, float, None] = None,
         **options: Any) -> Contract:
    """Join torch.distributed as the rank that the plan gave this process.

    Everything comes from the launch contract: rank, world size, and the
    address where ranks meet. Also makes the task's own GPU torch's current
    device. ``backend`` is "nccl" where the task has a GPU, else "gloo";
    ``timeout`` is a timedelta or seconds; other options are those of
    init_process_group(). Returns the contract. Does nothing more where the
    process has joined as that rank already.
    """
    contract = need("plait.init()")
    torch = _torch("plait.init()")
    dist = torch.distributed
    if dist.is_initialized():
        _check_joined("plait.init()", contract, dist)
        return contract
    if not contract.master_addr:
        raise Error("plait.init(): the step has no address where ranks meet "
                    "(MASTER_ADDR is not set): start it without "
                    "--rendezvous=none")
    _set_device(torch, contract)
    if backend is None:
        on_gpu = contract.gpu >= 0 and torch.cuda.is_available()
        backend = "nccl" if on_gpu else "gloo"
    if timeout is not None:
        options["timeout"] = (timeout if isinstance(timeout, timedelta)
                              else timedelta(seconds=timeout))
    host = contract.master_addr
    host = f"[{host}]" if ":" in host else host
    # env:// would take RANK, which another launcher or a user may have set.
    dist.init_process_group(
        backend, init_method=f"tcp://{host}:{contract.master_port}",
        rank=contract.rank, world_size=contract.world_size, **options)
    return contract


def _once(torch: Any, key: Tuple[Any, ...], make: Callable[[], Any]) -> Any:
    world = torch.distributed.group.WORLD
    if key not in _made or _made[key][0] is not world:
        _made[key] = (world, make())
    return _made[key][1]


def _device_type(torch: Any, contract: Contract) -> str:
    return ("cuda" if contract.gpu >= 0 and torch.cuda.is_available()
            else "cpu")


def mesh(device_type: Optional[str] = None, *, experts: bool = False) -> Any:
    """torch's DeviceMesh of the plan, made on the first call.

    Its axes are those of the rank order but ep, slowest first: "pp", "dp",
    "cp", "tp" in the default order, all of them there also where a size is 1.
    With ``experts`` they are "pp", "expert_dp", "ep", "tp": cp is part of
    expert_dp then. mesh()["tp"], mesh()["dp", "cp"]._flatten() and so on are
    torch's. Every rank has to call it, as it makes groups.
    """
    contract = need("plait.mesh()")
    torch = _torch("plait.mesh()")
    try:
        from torch.distributed.device_mesh import DeviceMesh
    except ImportError:
        raise Error(f"plait.mesh() needs torch 2.3 or later; this is "
                    f"{torch.__version__}") from None
    if not torch.distributed.is_initialized():
        init()
    _check_joined("plait.mesh()", contract, torch.distributed)
    device_type = device_type or _device_type(torch, contract)

    def make() -> Any:
        names, sizes, ranks = contract.layout.mesh(experts)
        return DeviceMesh(device_type,
                          torch.tensor(ranks, dtype=torch.int).reshape(sizes),
                          mesh_dim_names=tuple(names))
    return _once(torch, ("mesh", device_type, experts), make)


def groups(name: str) -> List[List[int]]:
    """All planned groups of that name, each with its ranks, ascending.

    The names: tp, cp, ep, dp, pp; dp-cp (the ranks that sum gradients of dense
    weights), expert-dp (the same of experts), tp-pp (one copy of the dense
    model). Needs no torch.
    """
    return need("plait.groups()").groups(name)


def group(name: str) -> Any:
    """torch's process group of this rank of that name (those of groups()).

    Made on the first call, which every rank has to make.
    """
    contract = need("plait.group()")
    found = contract.groups(name)  # a wrong name ends here, on every rank
    torch = _torch("plait.group()")
    if not torch.distributed.is_initialized():
        init()
    _check_joined("plait.group()", contract, torch.distributed)

    def make() -> Any:
        made = [torch.distributed.new_group(ranks) for ranks in found]
        return next(g for g, ranks in zip(made, found)
                    if contract.rank in ranks)
    return _once(torch, ("group", name), make)
