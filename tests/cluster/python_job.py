# SPDX-License-Identifier: Apache-2.0
"""What python.sh starts as the tasks of a step: python_job.py WHAT FILE.

mesh    the groups of plait.mesh() and plait.group() against the coordinates
        that srun's tasks have, a sum over each
init    the same without a mesh, for an old torch
train   the example of docs/python.md against one process
RANK 0 writes what it found to FILE.
"""
import os
import sys

import torch
import torch.distributed as dist

import plait

AXES = ("tp", "cp", "ep", "dp", "pp")


def coordinates():
    """Of all ranks, as the plugin wrote them: this module computes none."""
    own = {a: int(os.environ[f"PLAIT_{a.upper()}_RANK"]) for a in AXES}
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return found


def planned(at, axes, rank):
    """The ranks that differ from `rank` along these axes alone."""
    same = [a for a in ("tp", "cp", "dp", "pp") if a not in axes]
    return [r for r, of in enumerate(at)
            if all(of[a] == at[rank][a] for a in same)]


def check_group(name, group, wanted, rank):
    got = sorted(dist.get_process_group_ranks(group)) if hasattr(
        dist, "get_process_group_ranks") else sorted(plait.contract().group(
            name))
    assert got == wanted, f"rank {rank}: {name} is {got}, planned {wanted}"
    total = torch.tensor([float(rank)])
    dist.all_reduce(total, group=group)
    assert int(total) == sum(wanted), f"rank {rank}: {name} sums to {total}"


def check_experts(at, rank):
    """ep and expert-dp make up dp-cp, and ep has each ep coordinate once."""
    both = planned(at, ("dp", "cp"), rank)
    ep = plait.contract().group("ep")
    assert set(ep) <= set(both)
    assert sorted(at[r]["ep"] for r in ep) == list(range(len(ep)))
    expert = plait.contract().group("expert-dp")
    assert set(expert) <= set(both) and len(both) == len(ep) * len(expert)
    assert {at[r]["ep"] for r in expert} == {at[rank]["ep"]}
    return ep, expert


def check_mesh(rank, at):
    mesh = plait.mesh()
    assert plait.mesh() is mesh
    order = [a for a in os.environ["PLAIT_ORDER"].split("-") if a != "ep"]
    assert list(mesh.mesh_dim_names) == order[::-1], mesh.mesh_dim_names
    for axis in mesh.mesh_dim_names:
        check_group(axis, mesh[axis].get_group(), planned(at, (axis,), rank),
                    rank)
        assert mesh.get_local_rank(axis) == at[rank][axis]
    experts = plait.mesh(experts=True)
    ep, expert = check_experts(at, rank)
    check_group("ep", experts["ep"].get_group(), ep, rank)
    check_group("expert-dp", experts["expert_dp"].get_group(), expert, rank)
    for axis in ("tp", "pp"):
        check_group(axis, experts[axis].get_group(),
                    planned(at, (axis,), rank), rank)


def main(what, path):
    contract = plait.init(timeout=240)
    rank = dist.get_rank()
    assert plait.init() is not None and dist.get_backend() == "gloo"
    assert (rank, dist.get_world_size()) == (
        int(os.environ["PLAIT_RANK"]), int(os.environ["PLAIT_WORLD_SIZE"]))
    at = coordinates()
    for name, axes in (("dp-cp", ("dp", "cp")), ("tp-pp", ("tp", "pp"))):
        check_group(name, plait.group(name), planned(at, axes, rank), rank)
    if what == "mesh":
        check_mesh(rank, at)
    else:
        for axis in ("tp", "cp", "dp", "pp"):
            check_group(axis, plait.group(axis), planned(at, (axis,), rank),
                        rank)
    procids = [None] * dist.get_world_size()
    dist.all_gather_object(procids, int(os.environ.get("SLURM_PROCID", rank)))
    if rank == 0:
        with open(path, "w") as out:
            print(contract.world_size, contract.nodes, *procids, file=out)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # PyTorch 1.13 sometimes aborts when Python exits


main(*sys.argv[1:])
