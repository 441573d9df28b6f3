# SPDX-License-Identifier: Apache-2.0
"""What a run of two ranks takes of its machine, every so many steps.
usage: soak.py sample DIR STEPS SAVES: until DIR/m has so many steps; SAVES
           has the checkpoints
       soak.py flat DIR WHAT: whether that grew in the second half"""
import json
import os
import sys
import time

SAMPLES = 48
# How much each may vary at any time: a checkpoint may just be written, and the
# allocator keeps freed memory.
ROOM = {"memory": 2048, "descriptors": 4, "threads": 3, "files": 8}


def read(path):
    with open(path) as f:
        return f.read()


def sample(run, saves):
    """Sums over the two ranks; memory in KB."""
    got = dict.fromkeys(ROOM, 0)
    for rank in ("0", "1"):
        pid = read(os.path.join(run, "pid." + rank)).strip()
        status = dict(line.split(":", 1) for line in
                      read("/proc/%s/status" % pid).splitlines())
        got["memory"] += int(status["VmRSS"].split()[0])
        got["threads"] += int(status["Threads"])
        got["descriptors"] += len(os.listdir("/proc/%s/fd" % pid))
    for _, folders, files in os.walk(saves):
        got["files"] += len(folders) + len(files)
    return got


def take(run, steps, saves):
    metrics = open(os.path.join(run, "m"))
    taken, seen, quiet = [], 0, time.monotonic()
    while seen < steps:
        lines = sum(line.endswith("\n") for line in metrics)
        seen += lines
        if lines:
            quiet = time.monotonic()
        if time.monotonic() - quiet > 240:
            sys.exit("no step for 240 s after step %d" % seen)
        if seen * SAMPLES >= steps * (len(taken) + 1):
            taken.append(dict(sample(run, saves), step=seen))
        time.sleep(0.005)
    with open(os.path.join(run, "samples"), "w") as f:
        json.dump(taken, f)


def compare(run, what):
    taken = json.loads(read(os.path.join(run, "samples")))
    last = taken[-1]["step"]
    early = [s[what] for s in taken if last <= 8 * s["step"] <= 4 * last]
    late = [s[what] for s in taken if 2 * s["step"] > last]
    if not early or not late:
        print("too few samples on this machine: %d" % len(taken))
        return True
    print("%s: %d to %d until step %d, %d to %d until step %d" % (
        what, min(early), max(early), last // 2, min(late), max(late), last))
    return max(late) <= max(early) + ROOM[what]


if sys.argv[1] == "sample":
    take(sys.argv[2], int(sys.argv[3]), sys.argv[4])
else:
    sys.exit(not compare(sys.argv[2], sys.argv[3]))
