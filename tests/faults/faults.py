# SPDX-License-Identifier: Apache-2.0
"""Injects every fault that one machine allows into trainings, at random
moments, and compares the result with an undisturbed run: the hash of weights
and optimizer state (train.deterministic) where the layout stays the same, the
loss where the training resumes in another layout. Prints TAP and a table."""
import argparse
import glob
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

import live
from notice import Notice, rank_of
from table import Table, said_of
from trial import EVERY, STEPS, Case, Failed, Run, Skipped

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


# train.timeout, for the faults that it must notice, in seconds
LIMIT = 4
TIMEOUT = ["--set", f"train.timeout={LIMIT}"]


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
# Each function gets a case, a layout and a random step, hurts a run and waits
# for its end. It returns the run if that went on by itself to the last step,
# else None.


def newest(case, kind):
    """Files of the checkpoint that was saved last, whose names match `kind`."""
    folder = os.path.join(case.ck, os.readlink(case.ck + "/latest"))
    return sorted(glob.glob(folder + "/" + kind))


def kill_one(case, layout, step, rng):
    run = Run(case, layout)
    if run.at_step(step):
        pids = run.ranks()
        if pids:
            notice = Notice(case, run, rng.choice(pids))
            os.kill(notice.pid, signal.SIGKILL)
            notice.of_loss()
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


def stopped(seconds):
    def fault(case, layout, step, rng):
        run = Run(case, layout)
        if run.at_step(step):
            for pid in run.ranks()[-1:]:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(seconds)
                os.kill(pid, signal.SIGCONT)
        if run.wait() != 0:
            raise Failed("a short stop ended it: " + run.text()[-300:])
        return run
    return fault


def stop_for_ever(case, layout, step, rng):
    run = Run(case, layout, more=[*TIMEOUT, "--set", "train.steps=100000000"])
    run.at_step(step)
    notice = Notice(case, run, rng.choice(run.ranks()))
    os.kill(notice.pid, signal.SIGSTOP)
    notice.of_hang(LIMIT)
    if run.wait() == 0:
        raise Failed("ended well")
    if not case.noted["named"]:
        raise Failed("names another: " + run.text()[-400:])
    os.unlink(case.metrics)
    shutil.rmtree(case.ck, ignore_errors=True)  # its step is past STEPS


def send(pid, sig):
    """Send a signal to a process that may already have ended."""
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


def in_place(sig, seconds=0, spare=None):
    """Hurt a rank of an elastic run. A spare rank takes its place, so that the
    layout and all bits stay the same; a stopped rank reports later that it was
    left out. spare: hurt the spare rank (True), another (False) or any
    (None)."""
    def fault(case, layout, step, rng):
        run = Run(case, layout, more=[*TIMEOUT, *rng.choice(
            [[], ["--set", "checkpoint.memory=10"]])],
            launch=["--elastic", "--spares=1"])
        if run.at_step(step):
            notice = Notice(case, run, rng.choice(
                [pid for pid in run.ranks()
                 if spare is None or (rank_of(pid) is None) == spare]))
            send(notice.pid, sig)
            if sig == signal.SIGKILL:
                notice.of_loss()
            else:
                notice.of_hang(LIMIT)
            if seconds:
                time.sleep(max(0, seconds - notice.age()))
                send(notice.pid, signal.SIGCONT)
        if run.wait() != 0:
            raise Failed("the others do not go on: " + run.text()[-400:])
        if case.noted.get("named") is False:
            raise Failed("names another: " + run.text()[-400:])
        return run
    return fault


def link_down(seconds):
    """Take down the network between the ranks, which run in a network
    namespace of their own. seconds: for how long; 0: for ever."""
    def fault(case, layout, step, rng):
        case.launcher = "plait run"
        more = [] if seconds else [*TIMEOUT, "--set", "train.steps=100000000"]
        run = Run(case, layout, more=more, front=[
            "unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "-"])
        there = run.at_step(step)
        if not there and "unshare" in run.text():
            raise Skipped("namespaces are not permitted here")
        if there:
            notice = Notice(case, run, None)
            set_link(run, "down")
        if there and not seconds:
            notice.of_hang(LIMIT)
        if there and seconds:
            time.sleep(seconds)
            set_link(run, "up")
        if seconds and run.wait() != 0:
            raise Failed("a short cut ended it: " + run.text()[-300:])
        if seconds:
            return run
        if run.wait() == 0:
            raise Failed("ended well")
        if "has not ended for" not in run.text():
            raise Failed("says something else: " + run.text()[-400:])
        os.unlink(case.metrics)
        shutil.rmtree(case.ck, ignore_errors=True)  # its step is past STEPS
    return fault


def set_link(run, state):
    for pid in run.ranks()[:1]:
        subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "link", "set",
                        "lo", state], check=False)


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
        # Saves go on beside steps: there must be an older one to go on from.
        if not run.at_step(max(step, 3 * EVERY)) or not run.until(
                lambda: len(glob.glob(case.ck + "/step-????????")) > 1,
                "two saves"):
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
    if "truncated while it was read" not in run.text():
        raise Failed("does not name the file: " + run.text()[-300:])


def other_layout(case, layout, step, rng):
    kill_all(case, layout, step, rng)
    case.other = rng.choice([x for x in LAYOUTS if x != layout])


def changed(prefix, change, said, more=()):
    """Change one number in the memory of a training rank, which must be
    noticed. said: texts of which the run must print one."""
    def fault(case, layout, step, rng):
        step = max(step, EVERY + 2)
        run = Run(case, layout, more=more)
        if not run.at_step(step):
            raise Failed("too quick: " + run.text()[-300:])
        run.until(lambda: os.path.exists(case.ck + "/latest"), "a save")
        try:
            written = live.overwrite(run.ranks(), newest(case, "rank-*"),
                                     prefix, change, rng)
        except (live.Unreadable, OSError) as e:
            raise Skipped(str(e)) from None
        if not written:
            raise Skipped("the numbers are not found in memory")
        made = open(case.metrics).read().count("\n")
        stale = run.at_step(made + 2) and live.are_stale(written)
        if run.wait() == 0 and made >= STEPS - 1:
            raise Skipped("the run was at its end by then")
        if run.process.returncode == 0 and stale:
            raise Skipped("only older copies of the numbers were found")
        if run.process.returncode == 0:
            raise Failed(f"{len(written)} changed numbers are not noticed")
        if not any(words in run.text() for words in said):
            raise Failed("says something else: " + run.text()[-400:])
    return fault


def flip(number):
    """Flip the highest bit of the mantissa."""
    return struct.unpack("<f", struct.pack(
        "<I", struct.unpack("<I", struct.pack("<f", number))[0] ^ 1 << 22))[0]


def changed_replica(case, layout, step, rng):
    if layout[1].get("dp", 1) == 1 or layout[1].get("zero"):
        raise Skipped("no two ranks hold the same")
    changed("layers.", flip, [DIFFER],
            ["--set", "train.check_replicas=5"])(case, layout, step, rng)


def cut_metrics(case, layout, step, rng):
    kill_all(case, layout, step, rng)
    size = os.path.getsize(case.metrics)
    os.truncate(case.metrics, size - rng.randrange(1, min(size, 60)))


# What the trainer prints of a number that is not finite: in a step, in a save.
NOT_FINITE = ["the first one is", "the state is not finite"]
# What it prints where ranks that should hold the same do not. If an update has
# made a weight NaN in the step before a save, the comparison may come first.
DIFFER = "train.check_replicas: after step"
FAULTS = [
    ("SIGKILL of a rank", kill_one),
    ("SIGKILL of all", kill_all),
    ("SIGKILL in a save", kill_in_save),
    ("SIGSTOP for 1.5 s", stopped(1.5)),
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
    ("NaN in a live weight", changed("layers.", lambda x: float("nan"),
                                     NOT_FINITE)),
    ("a live second moment -5", changed("optim.v.", lambda x: -5.0,
                                        [*NOT_FINITE, DIFFER])),
    ("bit flip in one replica", changed_replica),
    ("SIGSTOP for 10 s", stopped(10)),
    ("in place: SIGKILL", in_place(signal.SIGKILL)),
    ("in place: SIGSTOP for ever", in_place(signal.SIGSTOP, spare=False)),
    ("in place: SIGSTOP for 10 s", in_place(signal.SIGSTOP, 10, False)),
    ("in place: SIGSTOP of a spare", in_place(signal.SIGSTOP, 2, True)),
    ("link down for 5 s", link_down(5)),
    ("link down for ever", link_down(0)),
]
HANGS = ["SIGSTOP for ever", "in place: SIGSTOP for ever",
         "in place: SIGSTOP for 10 s", "link down for ever"]
# These faults need several ranks: a single one waits for nobody, and nobody can
# go on without it.
OF_SEVERAL = [f for name, f in FAULTS if f in (
    stop_for_ever, other_layout, changed_replica) or
    name.startswith(("in place", "link down"))]


def reference(args, layout, launcher, table):
    key, known = json.dumps([layout, launcher]), table.known
    if key not in known:
        case = Case(args, f"whole-{len(known)}", launcher)
        run = Run(case, layout)
        try:
            if run.wait() != 0:
                raise Failed("the whole run failed: " + run.text()[-500:])
            known[key] = state_of(run), loss_of(case)
            table.write({"key": key, "state": known[key]})
        finally:
            case.end()
            shutil.rmtree(case.dir)
    return known[key]


def one_fault(args, number, fault, layout, launcher, rng, table):
    state, loss = reference(args, layout, launcher, table)
    step = rng.randint(2, STEPS - 2 * EVERY)
    case = Case(args, number, launcher)
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
        why = None
    except Failed as e:
        why = str(e)
    finally:
        case.end()
        shutil.rmtree(case.dir, ignore_errors=True)
    return {"why": why, "step": step, "starts": len(case.runs), **case.noted}


def is_of(name, kinds):
    hangs = name in HANGS
    return not kinds or any(hangs if kind == "hang" else kind in name
                            for kind in kinds.split(","))


def drawn(args, faults, layouts, rng):
    """Yield name, fault, layout and launcher: all faults in turn with the
    first launcher, or with --random in any order, with random layouts and both
    launchers."""
    launchers = (["mpirun"] if args.mpirun else []) + ["plait run"]
    if not args.random:
        launchers = launchers[:1]
    order = [faults[i % len(faults)] for i in range(args.count)]
    if args.random:
        rng.shuffle(order)
    for i, (name, fault) in enumerate(order):
        layout = layouts[(i + i // len(faults)) % len(layouts)]
        if args.random:
            layout = rng.choice(layouts)
        if fault == changed_replica or fault in OF_SEVERAL and \
                layout[0] == 1:
            layout = LAYOUTS[2]
        launcher = rng.choice(launchers)
        if name.startswith(("in place", "link down")):
            launcher = "plait run"
        yield name, fault, layout, launcher


def arguments():
    p = argparse.ArgumentParser()
    for name in ("train", "plait", "preload", "work"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--mpirun", default="", help="none: plait run alone")
    p.add_argument("--count", type=int, default=300)
    p.add_argument("--layouts", type=int, default=len(LAYOUTS))
    p.add_argument("--random", action="store_true")
    p.add_argument("--kinds", default="", help="what the names of the faults "
                   "have that are drawn, a comma between; hang: those that "
                   "train.timeout is to notice")
    p.add_argument("--table", default="",
                   help="a file to note each fault in, and to go on with")
    p.add_argument("--seconds", type=float, default=float("inf"),
                   help="begin no fault later than that")
    p.add_argument("--seed", type=int,
                   default=int(os.environ.get("PLAIT_TEST_SEED") or
                               time.time()))
    return p.parse_args()


def chosen(args, rng):
    """The faults and layouts to draw from."""
    alone = not args.preload or not os.path.exists(args.preload)
    faults = [f for f in FAULTS if is_of(f[0], args.kinds) and not (
        alone and f[0] in ("disk full", "EIO in a save", "read-only"))]
    layouts = LAYOUTS
    if args.layouts < len(LAYOUTS):
        layouts = [LAYOUTS[0], LAYOUTS[rng.choice([1, 2, 3])]][:args.layouts]
    if args.layouts == 1:  # a single rank waits for nobody
        faults = [f for f in faults if f[1] not in OF_SEVERAL]
    if not faults:
        print(f"Bail out! no fault has a name of KINDS={args.kinds}")
        sys.exit(2)
    return faults, layouts


def main():
    args = arguments()
    sys.path.insert(0, os.path.dirname(__file__) + "/../lib")
    import tokens
    tokens.write_tokens(args.work + "/tokens.bin")
    print(f"# PLAIT_TEST_SEED={args.seed} repeats this run")
    table = Table(args.table, args.seed, args.kinds)
    rng, failed = random.Random(args.seed), 0
    faults, layouts = chosen(args, rng)
    done, start = 0, time.time()
    for i, (name, fault, layout, launcher) in enumerate(
            list(drawn(args, faults, layouts, rng))):
        if i in table.rows:
            continue
        rng = random.Random(f"{args.seed} {i}")
        if time.time() - start > args.seconds:
            print(f"# {args.count - i} faults are left out: the machine is "
                  "busy")
            break
        done += 1
        begin = time.time()
        what = f"{name}, {layout[0]} ranks {layout[1] or ''}"
        try:
            row = one_fault(args, i, fault, layout, launcher, rng, table)
        except Skipped as e:
            print(f"ok {i + 1} - {what} # SKIP {e}", flush=True)
            continue
        row = {"number": i, "fault": name, **row,
               "layout": f"{layout[0]} ranks " + " ".join(
                   f"{k}={v}" for k, v in layout[1].items()),
               "launcher": launcher if layout[0] > 1 else "alone",
               "seconds": time.time() - begin}
        table.write(row)
        if layout[0] > 1:
            what += f", {launcher}"
        why = row["why"]
        print(f"{'not ok' if why else 'ok'} {i + 1} - {what}, at step "
              f"{row['step']}: {row['starts']} starts{said_of(row)}",
              flush=True)
        for line in (why or "").splitlines():
            print("# " + line)
        failed += why is not None
    print(f"1..{done}")
    table.show()
    sys.exit(1 if failed else 0)


main()
