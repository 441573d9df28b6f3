# SPDX-License-Identifier: Apache-2.0
"""What happens to one rank of a run: inject.c. A run with a fault ends with a
line, or goes on, in time; the run behind it resumes from what was saved."""
import errno
import math
import re

# call: at how many calls of it a rank of a small job is done; what it fails
# with.
CALLS = {
    "malloc": (2000, [errno.ENOMEM]),
    "calloc": (2000, [errno.ENOMEM]),
    "open": (60, [errno.EACCES, errno.EMFILE, errno.ENOENT]),
    "read": (100, [errno.EIO]),
    "write": (100, [errno.EIO, errno.ENOSPC]),
    "fsync": (8, [errno.EIO]),
    "rename": (8, [errno.ENOSPC]),
    "mmap": (30, [errno.ENOMEM]),
    "socket": (12, [errno.EMFILE]),
    "pthread_create": (6, [errno.EAGAIN]),
    "getrandom": (4, [errno.ENOSYS]),
}
CRASH = re.compile(r"signal 11|signal 6|SIGSEGV|SIGABRT|[Ss]egmentation|"
                   r"Aborted|corrupted|Assertion|double free|Sanitizer")


def count(rng, most):
    """Early calls as often as late ones: most of a program is at its start."""
    return int(math.exp(rng.uniform(0, math.log(most + 1))))


def moment(rng):
    if rng.random() < 0.5:
        return f"time {rng.randint(10, 1000)}"
    call = rng.choice(["malloc", "read", "write", "open"])
    return f"{call} {count(rng, CALLS[call][0])}"


def fault(rng, rank):
    kind = rng.choice(["call"] * 5 + ["kill"] * 3 + ["stop"] * 2 + ["late"])
    if kind == "call":
        call = rng.choice(list(CALLS))
        most, errors = CALLS[call]
        return f"{rank} {call} {count(rng, most)} {rng.choice(errors)}"
    if kind == "kill":
        return f"{rank} {moment(rng)} kill"
    if kind == "stop":
        return f"{rank} {moment(rng)} stop {rng.randint(50, 1500)}"
    return f"{rank} time 0 sleep {rng.randint(100, 3000)}"


def is_kill(run):
    return run["fault"] is not None and " kill" in run["fault"]


def add(rng, job, ranks, one_run):
    """A run with a fault and one that resumes after it. ranks(): how many a
    run has; one_run(): draws another run."""
    victim = one_run()
    for _ in range(20):
        if ranks(victim) > 1:
            break
        victim = one_run()
    victim["fault"] = fault(rng, rng.randrange(ranks(victim)))
    job["runs"].append(victim)
    behind = one_run()
    behind["from"] = [len(job["runs"]) - 1, "auto"]
    job["runs"].append(behind)


def ends_well(run, result, last):
    """What is wrong with how a run with a fault has ended, or None. What a
    killed rank's launcher prints is not judged, but somebody must say it, if
    steps up to the last one were still to be made."""
    if CRASH.search(result.text):
        return "crash", "a rank crashed"
    if result.status in (139, 134, -11, -6):
        return "crash", f"status {result.status}"
    if result.status and not result.said() and last not in result.lines and \
            not re.search("mpirun noticed|Primary job", result.text):
        return "silent", f"ends with status {result.status} and no line"
    if result.status and not result.hit:
        return "exit", f"status {result.status} before the fault"
    if result.status and not is_kill(run) and " stop " in run["fault"]:
        return "exit", f"status {result.status} though it was only stopped"
    if result.status and " sleep " in run["fault"]:
        return "exit", f"status {result.status} though it was only late"
    return None
