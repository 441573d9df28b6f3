# SPDX-License-Identifier: Apache-2.0
"""A planned job by NeMo-Run, on so many nodes and tasks a node:
python nemo_run_job.py NODES TASKS_PER_NODE COMMAND...

NeMo-Run writes and submits its own batch script; the layout is given as
Slurm's other options are, in additional_parameters. No launcher: its torchrun
and fault-tolerance launchers start one task a node, whatever ntasks_per_node
says, and --tp=2 does not fit such a step. The tasks find the plan in RANK,
MASTER_ADDR and PLAIT_*, as those of torchrun would. Their output is in
$NEMORUN_HOME/experiments (~/.nemo_run/experiments).
"""
import os
import shlex
import sys

import nemo_run as run

if __name__ == "__main__":
    nodes, tasks = map(int, sys.argv[1:3])
    executor = run.SlurmExecutor(
        account=os.environ.get("SLURM_ACCOUNT"), job_name_prefix="plait-",
        nodes=nodes, ntasks_per_node=tasks, gpus_per_node=tasks,
        time="1:00:00",
        launcher=None,
        additional_parameters={"tp": 2},
        tunnel=run.LocalTunnel(job_dir=""),
        packager=run.Packager())
    with run.Experiment("plait", executor=executor) as experiment:
        experiment.add(run.Script(inline=shlex.join(sys.argv[3:])),
                       name="train")
        experiment.run(detach=True)
