#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random whole jobs: a layout, a transport, a restart never changes what is
trained, and no run waits for ever. Prints TAP.

    jobs.py --build DIR --seeds A-B [--faults] [--jobs N] [--seconds N]
    jobs.py --data DIR     the data that a printed YAML names

--own: also look whether every key of plait.yaml can be drawn and faults would
be found.
"""
import argparse
import concurrent.futures
import json
import os
import shutil
import signal
import sys
import tempfile
import time

import data
import own
import run as runs
from check import check, describe
from draw import draw
from shrink import shrink

SHRINK = 60  # seconds for each failing seed


class Seeds:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.tools = runs.find_tools(os.path.abspath(args.build))
        self.data = work + "/data"
        self.end = time.monotonic() + (args.seconds or 1e9)
        self.count = self.failed = self.runs = self.refused = 0
        self.diverged, self.worst = 0, {}
        self.hits = self.ended = self.again = 0
        self.said = {}  # lines that were said as a run ended: how often
        os.mkdir(self.data)
        data.write_all(self.data)

    def try_one(self, seed):
        if time.monotonic() > self.end:
            return None
        job = draw(seed, self.tools, self.args.faults)
        report = check(self.tools, job, self.data, f"{self.work}/{seed}")
        small = None
        if report.failed and not self.args.no_shrink:
            small = self.shrunk(job, *report.failed[0][:2])
        return job, report, small

    def shrunk(self, job, i, kind):
        def still_fails(small):
            last = len(small["runs"]) - 1
            found = check(self.tools, small, self.data,
                          f"{self.work}/s{job['seed']}").failed
            return any(f[:2] == (last, kind) for f in found)

        if i >= len(job["runs"]):
            return None
        return shrink(job, i, still_fails, SHRINK)

    def tell(self, job, report, small):
        self.count += 1
        self.failed += bool(report.failed)
        self.runs += report.runs
        self.refused += len(report.refused)
        self.diverged += report.diverged
        self.hits += report.hits
        self.ended += report.ended
        self.again += report.again
        for n in report.said:
            self.said[n] = self.said.get(n, 0) + 1
        for kind, value in report.worst.items():
            self.worst[kind] = max(self.worst.get(kind, (0, 0)),
                                   (value, job["seed"]))
        print("ok" if not report.failed else "not ok", self.count,
              f"- seed {job['seed']}: {describe(job)}", flush=True)
        for i, kind, text in report.failed:
            print(f"# run {i}, {kind}: " + text.replace("\n", "\n#   "))
        if report.failed:
            self.reproduce(small or job, small is not None)
        elif report.refused:
            print("# refused: " + "\n# ".join(report.refused))

    def reproduce(self, job, is_small):
        """The YAML and the lines that show it again."""
        folder = f"{tempfile.gettempdir()}/job{job['seed']}"
        print("# shrunk:" if is_small else "# as drawn:")
        runs.write_yaml(self.work + "/c.yaml", job["config"],
                        folder + "/data")
        with open(self.work + "/c.yaml") as f:
            text = f.read().rstrip().replace(self.work, folder)
            print("# " + text.replace("\n", "\n# "))
        if "train.init" in job["config"]:
            print("# before the first run the same with --set train.init=new "
                  "--set train.seed=7 --set checkpoint.dir="
                  f"{folder}/first")
        print(f"# {runs.HERE}/jobs.py --data {folder}/data; the above into "
              f"{folder}/c.yaml; then")
        for i in range(len(job["runs"])):
            print("#   " + runs.shown(self.tools, job, i, folder))
        sys.stdout.flush()

    def all(self, first, last):
        begin = time.monotonic()
        for what, wrong in own.checks(self.tools, self.data, self.work) \
                if self.args.own else ():
            self.count += 1
            self.failed += bool(wrong)
            print("not ok" if wrong else "ok", self.count, "-", what, wrong)
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            for done in pool.map(self.try_one, range(first, last + 1)):
                if done:
                    self.tell(*done)
        print(f"1..{self.count}")
        if self.args.faults:
            print(f"# {self.hits} faults happened, {self.ended} of them ended "
                  "the run; lines that were said then:", ", ".join(
                      f"{n} ({self.said[n]} times)" for n in
                      sorted(self.said)))
        print(f"# {self.count} jobs, {self.runs} runs in "
              f"{time.monotonic() - begin:.0f} s; {self.failed} failed; "
              f"{self.refused} runs were refused, {self.diverged} jobs "
              f"diverged; {self.again} runs were made again, as mpirun "
              "crashed; worst deviations:")
        for kind, (value, seed) in sorted(self.worst.items()):
            print(f"#   {kind} {value:.1e} (seed {seed})")
        return 1 if self.failed or not self.count else 0


def run_seeds(args, first, last):
    work = tempfile.mkdtemp(prefix="plait-jobs.")
    shm = tempfile.mkdtemp(prefix="plait.", dir="/dev/shm")
    # what a killed mpirun leaves is removed, too
    os.environ.update(TMPDIR=work, OMPI_MCA_btl_vader_backing_directory=shm)

    def remove():
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(shm, ignore_errors=True)

    def ended(*_):
        runs.end_all(runs.MARK)
        remove()
        os._exit(1)

    signal.signal(signal.SIGTERM, ended)
    try:
        return Seeds(args, work).all(first, last)
    finally:
        remove()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=".")
    p.add_argument("--seeds", default="1-10")
    p.add_argument("--faults", action="store_true")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=float, help="start no job after these")
    p.add_argument("--no-shrink", action="store_true")
    p.add_argument("--own", action="store_true")
    p.add_argument("--show", action="store_true", help="print the jobs only")
    p.add_argument("--data")
    args = p.parse_args()
    if args.data:
        os.makedirs(args.data, exist_ok=True)
        data.write_all(args.data)
        return 0
    first, last = map(int, (args.seeds.split("-") * 2)[:2])
    if args.show:
        tools = runs.find_tools(os.path.abspath(args.build))
        for seed in range(first, last + 1):
            print(json.dumps(draw(seed, tools, args.faults)))
        return 0
    return run_seeds(args, first, last)


if __name__ == "__main__":
    sys.exit(main())
