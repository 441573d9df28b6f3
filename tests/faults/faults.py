# SPDX-License-Identifier: Apache-2.0
"""Hurts trainings in every way that can be had without a second machine, at
random moments, and holds what comes of it against a run that nothing happened
to: the hash of weights and optimizer state (train.deterministic) of the same
layout, or the loss, where it goes on in another. Prints TAP and a table."""
import argparse
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

STEPS, EVERY = 240, 20
HANGS = 240  # seconds after which something hangs for certain
LAYOUTS = [  # ranks, sizes
    (1, {}),
    (2, {"tp": 2}),
    (2, {"dp": 2}),
    (2, {"pp": 2}),
    (2, {"dp": 2, "zero": 1}),
    (4, {"tp": 2, "pp": 2}),
    (4, {"dp": 4, "zero": 3}),
    (4, {"tp": 2, "dp": 2, "zero": 2}),
    (4, {"pp": 2, "dp": 2}),
    (2, {"cp": 2}),
    (4, {"tp": 2, "cp": 2}),
    (4, {"pp": 4, "schedule": "zb-h1"}),
]
CONFIG = """
model: {{layers: 4, hidden: 32, heads: 4, vocab: 257, seq_len: 32}}
data: {{train: {tokens}}}
train: {{steps: {steps}, global_batch: 8, micro_batch: 2, seed: 5,
        deterministic: true, timeout: {timeout}}}
"""


class Failed(Exception):
    pass


class Run:
    """One start of the trainer."""

    def __init__(self, case, layout, env=None, more=()):
        ranks, sizes = layout
        a = case.args
        command = [a.train, case.config, "--metrics", case.metrics,
                   "--set", "checkpoint.dir=" + case.ck,
                   "--set", f"checkpoint.every={EVERY}"]
        for k, v in sizes.items():
            command += ["--set", f"parallel.{k}={v}"]
        command += list(more)
        if ranks > 1:
            command = ["sh", a.mpirun, str(ranks)] + command
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
        """Processes of the trainer, of this run alone."""
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

    def until(self, what, why):
        end = time.time() + HANGS
        while not what():
            if self.process.poll() is not None:
                return False
            if time.time() > end:
                raise Failed("hangs before " + why)
            time.sleep(0.002)
        return True

    def at_step(self, step):
        def there():
            try:
                return open(self.case.metrics).read().count("\n") >= step
            except OSError:
                return False
        return self.until(there, f"step {step}")

    def wait(self):
        try:
            status = self.process.wait(HANGS)
        except subprocess.TimeoutExpired:
            raise Failed("hangs") from None
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
    def __init__(self, args, number, timeout=0):
        self.args, self.runs = args, []
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


def state_of(run):
    lines = [s for s in run.text().splitlines() if s.startswith("state after")]
    if len(lines) != 1:
        raise Failed("no state: " + run.text()[-300:])
    return lines[0]


def loss_of(case):
    rows = [json.loads(s) for s in open(case.metrics)]
    if [r["step"] for r in rows] != list(range(1, STEPS + 1)):
        raise Failed("steps are missing from the metrics")
    return rows[-1]["loss"]


# -- the faults ----------------------------------------------------------------
# Each gets a case, a layout and a random moment, and hurts a run until it has
# ended. What it returns is what went on by itself, or None.


def newest(case, kind):
    """Files of the checkpoint that was saved last."""
    folder = os.path.join(case.ck, os.readlink(case.ck + "/latest"))
    return sorted(glob.glob(folder + "/" + kind))


def kill_one(case, layout, step, rng):
    run = Run(case, layout)
    if run.at_step(step):
        pids = run.ranks()
        if pids:
            os.kill(rng.choice(pids), signal.SIGKILL)
    if run.wait() == 0:
        return run


def kill_all(case, layout, step, rng):
    run = Run(case, layout)
    run.at_step(step)
    run.kill()


def kill_in_save(case, layout, step, rng):
    run = Run(case, layout)
    run.until(lambda: glob.glob(case.ck + "/*"), "a save")
    run.at_step(EVERY * rng.randint(1, 5))
    run.kill()


def stop_short(case, layout, step, rng):
    run = Run(case, layout)
    if run.at_step(step):
        for pid in run.ranks()[-1:]:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1.5)
            os.kill(pid, signal.SIGCONT)
    if run.wait() != 0:
        raise Failed("a short stop ended it: " + run.text()[-300:])
    return run


def stop_for_ever(case, layout, step, rng):
    run = Run(case, layout, more=["--set", "train.timeout=4", "--set",
                                  "train.steps=100000000"])
    run.at_step(step)
    pid = rng.choice(run.ranks())
    os.kill(pid, signal.SIGSTOP)
    if run.wait() == 0:
        raise Failed("ended well")
    if f"process {pid}) is stopped by a signal" not in run.text():
        raise Failed("names another: " + run.text()[-400:])
    os.unlink(case.metrics)
    shutil.rmtree(case.ck, ignore_errors=True)  # it may be far beyond


def end_in_order(case, layout, step, rng):
    run = Run(case, layout)
    if run.at_step(step):
        for pid in run.ranks():
            try:
                os.kill(pid, rng.choice([signal.SIGTERM, signal.SIGUSR1]))
            except OSError:
                pass
    if run.wait() != 0:
        raise Failed("does not end in order: " + run.text()[-300:])
    if "stopped after step" not in run.text():
        return run


def preloaded(call, number, name):
    def fault(case, layout, step, rng):
        gate = case.dir + "/gate"
        run = Run(case, layout, env={
            "LD_PRELOAD": case.args.preload, "FAULT_GATE": gate,
            "FAULT_CALL": call, "FAULT_ERRNO": str(number),
            "FAULT_FILE": name.format(ck=case.ck, tokens=case.tokens)})
        if run.at_step(step):
            open(gate, "w").close()
            run.at_step(min(step + 2 * EVERY, STEPS))
            os.unlink(gate)
        status = run.wait()
        if status != 0:
            return None
        if call != "read" and STEPS - step > 2 * EVERY and \
                "could not be saved" not in run.text():
            raise Failed("says nothing: " + run.text()[-300:])
        return run
    return fault


def remove_directory(case, layout, step, rng):
    run = Run(case, layout)
    if run.at_step(max(step, EVERY + 2)):
        for _ in range(100):
            try:
                shutil.rmtree(case.ck)
                break
            except OSError:
                continue
    if run.wait() == 0:
        return run


def damaged(kind, hurt):
    def fault(case, layout, step, rng):
        run = Run(case, layout)
        if not run.at_step(max(step, 3 * EVERY)):
            raise Failed("too quick: " + run.text()[-300:])
        run.kill()
        if not os.path.exists(case.ck + "/latest"):
            return
        for path in newest(case, kind)[:1]:
            size = os.path.getsize(path)
            at = rng.randrange(size)
            with open(path, "r+b") as f:
                if hurt == "cut":
                    f.truncate(at)
                else:
                    f.seek(at)
                    byte = f.read(1)[0]
                    f.seek(at)
                    f.write(bytes([byte ^ 1 << rng.randrange(8)]))
    return fault


def no_latest(case, layout, step, rng):
    kill_all(case, layout, step, rng)
    if os.path.lexists(case.ck + "/latest"):
        os.unlink(case.ck + "/latest")


def cut_data(case, layout, step, rng):
    run = Run(case, layout)
    if run.at_step(step):
        os.truncate(case.tokens, 1200)
    status = run.wait()
    shutil.copy(case.args.work + "/tokens.bin", case.tokens)
    if status == 0:
        return run
    if "cut while it was read" not in run.text():
        raise Failed("does not name the file: " + run.text()[-300:])


def other_layout(case, layout, step, rng):
    kill_all(case, layout, step, rng)
    case.other = rng.choice([x for x in LAYOUTS if x != layout])


def cut_metrics(case, layout, step, rng):
    kill_all(case, layout, step, rng)
    size = os.path.getsize(case.metrics)
    os.truncate(case.metrics, size - rng.randrange(1, min(size, 60)))


FAULTS = [
    ("SIGKILL of a rank", kill_one),
    ("SIGKILL of all", kill_all),
    ("SIGKILL in a save", kill_in_save),
    ("SIGSTOP for 1.5 s", stop_short),
    ("SIGSTOP for ever", stop_for_ever),
    ("SIGTERM, SIGUSR1", end_in_order),
    ("disk full", preloaded("write", 28, "{ck}")),
    ("EIO in a save", preloaded("fsync", 5, "{ck}")),
    ("read-only", preloaded("open", 30, "{ck}")),
    ("directory removed", remove_directory),
    ("manifest cut", damaged("manifest.json", "cut")),
    ("manifest flipped", damaged("manifest.json", "flip")),
    ("tensors cut", damaged("rank-*.safetensors", "cut")),
    ("tensors flipped", damaged("rank-*.safetensors", "flip")),
    ("latest removed", no_latest),
    ("data cut", cut_data),
    ("metrics cut", cut_metrics),
    ("requeued, another layout", other_layout),
]


def reference(args, layout, known):
    key = json.dumps(layout)
    if key not in known:
        case = Case(args, f"whole-{len(known)}")
        run = Run(case, layout)
        try:
            if run.wait() != 0:
                raise Failed("the whole run failed: " + run.text()[-500:])
            known[key] = state_of(run), loss_of(case)
        finally:
            case.end()
            shutil.rmtree(case.dir)
    return known[key]


def one_fault(args, number, name, fault, layout, rng, known):
    state, loss = reference(args, layout, known)
    step = rng.randint(2, STEPS - 2 * EVERY)
    case = Case(args, number)
    case.other = None
    try:
        done = fault(case, layout, step, rng)
        for _ in range(3):
            if done:
                break
            run = Run(case, case.other or layout)
            if run.wait() == 0:
                done = run
        if not done:
            raise Failed("does not go on: " + case.runs[-1].text()[-400:])
        if case.other is None and state_of(done) != state:
            raise Failed(f"{state_of(done)}, not {state}")
        got = loss_of(case)
        if not abs(got - loss) <= 2e-5 * abs(loss):
            raise Failed(f"loss {got}, not {loss}")
        return step, len(case.runs), None
    except Failed as e:
        return step, len(case.runs), str(e)
    finally:
        case.end()
        shutil.rmtree(case.dir, ignore_errors=True)


def main():
    p = argparse.ArgumentParser()
    for name in ("train", "mpirun", "preload", "work"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--count", type=int, default=300)
    p.add_argument("--layouts", type=int, default=len(LAYOUTS))
    p.add_argument("--only", default="")
    p.add_argument("--seconds", type=float, default=float("inf"),
                   help="begin no fault later than that")
    p.add_argument("--seed", type=int,
                   default=int(os.environ.get("PLAIT_TEST_SEED") or
                               time.time()))
    args = p.parse_args()
    sys.path.insert(0, os.path.dirname(__file__) + "/../lib")
    import tokens
    tokens.write_tokens(args.work + "/tokens.bin")
    print(f"# PLAIT_TEST_SEED={args.seed} repeats this run")
    rng, known, rows, failed = random.Random(args.seed), {}, {}, 0
    alone = not args.preload or not os.path.exists(args.preload)
    faults = [f for f in FAULTS if args.only in f[0] and not (
        alone and f[0] in ("disk full", "EIO in a save", "read-only"))]
    layouts = LAYOUTS
    if args.layouts < len(LAYOUTS):
        layouts = [LAYOUTS[0], LAYOUTS[rng.choice([1, 2, 3])]][:args.layouts]
    if args.layouts == 1:  # nobody waits, and nothing starts several ranks
        faults = [f for f in faults if f[1] not in (stop_for_ever,
                                                    other_layout)]
    done, start = 0, time.time()
    for i in range(args.count):
        if time.time() - start > args.seconds:
            print(f"# {args.count - i} faults are left out: the machine is "
                  "busy")
            break
        done += 1
        name, fault = faults[i % len(faults)]
        layout = layouts[(i + i // len(faults)) % len(layouts)]
        if name.startswith("SIGSTOP for ever") and layout[0] == 1:
            layout = LAYOUTS[2]
        begin = time.time()
        step, starts, why = one_fault(args, i, name, fault, layout, rng, known)
        row = rows.setdefault(name, [0, 0, 0.0])
        row[0] += 1
        row[1] += why is None
        row[2] += time.time() - begin
        what = f"{name}, {layout[0]} ranks {layout[1] or ''} at step {step}: " \
               f"{starts} starts"
        print(f"{'not ok' if why else 'ok'} {i + 1} - {what}", flush=True)
        for line in (why or "").splitlines():
            print("# " + line)
        failed += why is not None
    print(f"1..{done}\n# {'fault':26} runs  good  mean s")
    for name, (runs, good, seconds) in rows.items():
        print(f"# {name:26} {runs:4}  {good:4}  {seconds / runs:6.1f}")
    sys.exit(1 if failed else 0)


main()
