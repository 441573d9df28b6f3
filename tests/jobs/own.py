# SPDX-License-Identifier: Apache-2.0
"""Whether these tests can fail: every key can be drawn, and what is wrong is
found."""
import copy
import os
import subprocess

import keys
import run as runs
from check import check
from draw import draw


def reachable(tools):
    """Keys of plait.yaml, and names that they take, that no job has."""
    drawn = {}
    for seed in range(3000):
        job = draw(seed, tools)
        for part in [job["config"]] + [r["set"] for r in job["runs"]]:
            for key, value in part.items():
                drawn.setdefault(key, set()).add(str(value))
    # run.py gives every run these two
    drawn.update({"checkpoint.dir": set(), "log.metrics": set()})
    missing = []
    said = subprocess.run([tools["plait"], "keys"], check=True,
                          stdout=subprocess.PIPE, universal_newlines=True)
    for line in said.stdout.splitlines():
        key, default, takes = line.split(None, 2)
        if key not in drawn:
            missing.append(key)
        elif "|" in takes:
            never = keys.NEVER_VALUES.get(key, {})
            missing += [f"{key}={v}" for v in takes.split("|") if v != default
                        and v not in drawn[key] and v not in never]
    return " ".join(missing)


def plain_job(tools):
    """One with exact numbers: the reference and two ranks of it."""
    seed = 1
    while True:
        job = draw(seed, tools)
        c = job["config"]
        if (c["model.family"], c["optim.name"], c.get("train.precision"),
                c.get("sync.mode")) == ("gpt2", "adamw", "fp32", None) and \
                "model.experts" not in c and c["train.global_batch"] % 2 == 0:
            break
        seed += 1
    run = copy.deepcopy(job["runs"][0])
    run["set"]["parallel.dp"] = 2
    run["launcher"] = "hand"
    job["runs"] = [job["runs"][0], run]
    return job


def found(tools, job, data, work):
    report = check(tools, job, data, work + "/own")
    return [kind for i, kind, _ in report.failed if i == 1]


def crashing_mpirun(folder):
    """A folder with an mpirun that crashes once as Open MPI's does."""
    os.mkdir(folder)
    with open(folder + "/mpirun", "w") as f:
        f.write('''#!/bin/sh
[ -e "$0.ran" ] && PATH=${PATH#*:} exec mpirun "$@"
: >"$0.ran"
PATH=${PATH#*:} mpirun "$@"
echo "*** Process received signal ***"
echo "Signal: Segmentation fault (11)"
echo "[ 4] libopen-rte.so.40(pmix_server_finalize+0x2be)"
exit 139
''')
    os.chmod(folder + "/mpirun", 0o755)
    return folder


def made_again(tools, job, data, work):
    """What is wrong where mpirun crashes after a run."""
    path = os.environ["PATH"]
    job["runs"][1]["launcher"] = "mpi"
    os.environ["PATH"] = crashing_mpirun(work + "/bin") + ":" + path
    try:
        report = check(tools, job, data, work + "/own")
    finally:
        os.environ["PATH"] = path
    if report.failed or report.again != 1:
        return f"{report.failed}, {report.again} runs were made again"
    return ""


def checks(tools, data, work):
    """(what, what is wrong with it)"""
    yield "every key of plait.yaml can be drawn", reachable(tools)
    job = plain_job(tools)
    yield "an equal run passes", " ".join(found(tools, job, data, work))
    job["runs"][1]["set"]["optim.betas"] = "[0.9, 0.951]"
    yield "a run with another decay of a moment does not", \
        "" if "numbers" in found(tools, job, data, work) else "it passed"
    del job["runs"][1]["set"]["optim.betas"]
    if tools["mpi"]:
        yield "a run whose mpirun crashes is made again", \
            made_again(tools, copy.deepcopy(job), data, work)
    # In its save: before it has met the others it may be waited for for longer.
    job["runs"][1]["fault"] = "0 fsync 1 stop 600000"
    patience, runs.FAULT = runs.FAULT, 2
    kinds = found(tools, job, data, work)
    runs.FAULT = patience
    yield "a run that hangs is found and ended", \
        "" if "hang" in kinds else f"found: {kinds}"
