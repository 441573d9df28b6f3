# SPDX-License-Identifier: Apache-2.0
"""A planned job by submitit's Python API, on so many nodes and tasks a node:
python submitit_job.py NODES TASKS_PER_NODE

submitit writes and submits its own batch script; the layout is given as
Slurm's other options are. The tasks find the plan in RANK, MASTER_ADDR and
PLAIT_*. Leave out submitit's TorchDistributedEnvironment().export(): it counts
ranks by SLURM_PROCID, and refuses where RANK is set.
"""
import sys

import submitit


def train():
    import os

    return {name: int(os.environ[name]) for name in
            ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PLAIT_TP_RANK")}


if __name__ == "__main__":
    nodes, tasks = map(int, sys.argv[1:])
    executor = submitit.SlurmExecutor(folder="submitit-logs")
    executor.update_parameters(
        nodes=nodes, ntasks_per_node=tasks, gpus_per_node=tasks,
        additional_parameters={"tp": 2})
    job = executor.submit(train)
    for result in job.results():
        print(result)
