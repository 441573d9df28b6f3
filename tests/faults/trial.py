# SPDX-License-Identifier: Apache-2.0
"""One training into which a fault is injected: its files and its runs."""
import glob
import os
import shutil
import signal
import subprocess
import time

STEPS, EVERY = 240, 20
AXES = ("tp", "cp", "pp", "dp")
HANGS = 240  # a run without a new step for so many seconds hangs
CONFIG = """
model: {{layers: 4, hidden: 32, heads: 4, vocab: 257, seq_len: 32}}
data: {{train: {tokens}}}
train: {{steps: {steps}, global_batch: 8, micro_batch: 2, seed: 5,
        deterministic: true, timeout: {timeout}}}
"""


class Failed(Exception):
    pass


class Skipped(Exception):
    """The fault is not possible on this machine or with this layout."""


class Run:
    """One start of the trainer."""

    def __init__(self, case, layout, env=None, more=(), launch=(), front=()):
        """launch: arguments of plait run, which then starts the ranks whatever
        case.launcher says; front: a command that starts plait run."""
        ranks, sizes = layout
        a = case.args
        command = [a.train, case.config, "--metrics", case.metrics,
                   "--set", "checkpoint.dir=" + case.ck,
                   "--set", f"checkpoint.every={EVERY}"]
        sockets = launch or ranks > 1 and case.launcher != "mpirun"
        plan = {k: v for k, v in sizes.items() if sockets and k in AXES}
        for k, v in sizes.items():
            if k not in plan:
                command += ["--set", f"parallel.{k}={v}"]
        command += list(more)
        if ranks > 1 and not sockets:
            command = ["sh", a.mpirun, str(ranks)] + command
        elif sockets:
            command = [*front, a.plait, "run", "--np", str(ranks),
                       "--pin=none", *launch,
                       *(f"--{k}={v}" for k, v in plan.items()), "--",
                       *command, "--comm", "socket", "--device", "cpu"]
        self.case, self.path = case, case.dir + f"/out.{len(case.runs)}"
        case.runs.append(self)
        self.out = open(self.path, "w")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.out,
            stderr=subprocess.STDOUT, env={**os.environ, **(env or {})},
            start_new_session=True)

    def text(self):
        return open(self.path, errors="replace").read()

    def ranks(self):
        """PIDs of the trainer's processes, of this case alone."""
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                words = open(path, "rb").read().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"plait-train") and \
                    self.case.config.encode() in words:
                found.append(int(path.split("/")[2]))
        return sorted(found)

    def made(self):
        """Its steps and those of the runs before it."""
        try:
            return open(self.case.metrics).read().count("\n")
        except OSError:
            return 0

    def until(self, what, why, pause=0.002):
        """Wait for it. A busy machine makes steps slow, and a hang none."""
        made, end = self.made(), time.time() + HANGS
        while not what():
            if self.process.poll() is not None:
                return False
            if self.made() != made:
                made, end = self.made(), time.time() + HANGS
            if time.time() > end:
                raise Failed("hangs before " + why)
            time.sleep(pause)
        return True

    def at_step(self, step):
        return self.until(lambda: self.made() >= step, f"step {step}")

    def wait(self):
        self.until(lambda: False, "its end", 0.02)
        status = self.process.wait()
        end = time.time() + 30
        while self.ranks():
            if time.time() > end:
                raise Failed("leaves processes behind")
            time.sleep(0.05)
        return status

    def kill(self):
        for pid in self.ranks():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Case:
    def __init__(self, args, number, launcher, timeout=0):
        self.args, self.runs, self.launcher = args, [], launcher
        self.noted = {}  # set by class Notice
        self.dir = f"{args.work}/{number}"
        os.mkdir(self.dir)
        self.ck, self.metrics = self.dir + "/ck", self.dir + "/m.jsonl"
        self.tokens = self.dir + "/tokens.bin"
        shutil.copy(args.work + "/tokens.bin", self.tokens)
        self.config = self.dir + "/c.yaml"
        self.timeout = timeout
        with open(self.config, "w") as f:
            f.write(CONFIG.format(tokens=self.tokens, steps=STEPS,
                                  timeout=timeout))

    def end(self):
        for run in self.runs:
            run.kill()
            run.out.close()
