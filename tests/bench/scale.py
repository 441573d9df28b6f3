#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a real run of many ranks costs before its first step: scale.py PLAIT
TRAIN RANKS ...

`plait run --np RANKS` trains the smallest of models, each rank a replica on
its own, over sockets on this machine. Once all have made a step, each
process's descriptors, memory (its share of what is shared) and what it has
sent over TCP connections that are open (ss) are counted; payload goes through
shared memory. Then the run is ended, and it is timed until nobody is left."""
import collections
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

LIMIT_S = 300
CONFIG = """model: {family: gpt2, layers: 1, hidden: 16, heads: 1, vocab: 257,
        seq_len: 8}
data: {train: %s/data/train*.bin}
train: {steps: 1000000, global_batch: %d, micro_batch: 1}
log: {every: 1}
"""


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def sent_by_process():
    """Bytes sent over open connections, by process id."""
    sent = collections.Counter()
    try:
        out = subprocess.run(["ss", "-tinpHO"], capture_output=True,
                             text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    for line in out.splitlines():
        pid = re.search(r"pid=(\d+)", line)
        n = re.search(r"bytes_sent:(\d+)", line)
        if pid and n:
            sent[int(pid[1])] += int(n[1])
    return sent


def look_at(pid):
    """The number of descriptors and the MiB of a process."""
    pss = re.search(r"^Pss: *(\d+)", text_of("/proc/%d/smaps_rollup" % pid),
                    re.M)
    return len(os.listdir("/proc/%d/fd" % pid)), int(pss[1]) / 1024


def wait_for(run, log, begin):
    while "step 1/" not in text_of(log):
        if run.poll() is not None or time.monotonic() - begin > LIMIT_S:
            return None
        time.sleep(0.05)
    return time.monotonic() - begin


def measure(plait, train, ranks, d):
    config, log = d + "/c.yaml", d + "/log"
    for old in glob.glob(d + "/pid.*"):
        os.unlink(old)
    with open(config, "w", encoding="utf-8") as f:
        f.write(CONFIG % (d, ranks))
    begin = time.monotonic()
    with open(log, "w", encoding="utf-8") as out:
        run = subprocess.Popen(
            [plait, "run", "--np", str(ranks), "--dp", str(ranks),
             "--pin=none", "--", "sh", "-c",
             'echo $$ >"$0/pid.$PLAIT_RANK"; exec "$1" "$0/c.yaml" '
             "--device cpu --comm socket", d, train],
            stdout=out, stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"})
    row = {"ranks": ranks, "first_step_s": wait_for(run, log, begin)}
    if row["first_step_s"] is not None:
        sent = sent_by_process()
        pids = [int(text_of("%s/pid.%d" % (d, r))) for r in range(ranks)]
        seen = [look_at(pid) for pid in pids]
        row["descriptors"] = max(fds for fds, _ in seen)
        row["mib_rank_0"] = seen[0][1]
        row["mib_most"] = max(mib for _, mib in seen)
        if sent is not None:
            row["sent_rank_0"] = sent[pids[0]]
            row["sent_most"] = max(sent[pid] for pid in pids)
            row["sent_mean"] = sum(sent[pid] for pid in pids) / ranks
    begin = time.monotonic()
    run.send_signal(signal.SIGTERM)
    try:
        run.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()
    row["end_s"] = time.monotonic() - begin
    if row["first_step_s"] is None:
        sys.stderr.write("%d ranks made no step in %d s:\n%s\n" %
                         (ranks, LIMIT_S, text_of(log)[-500:]))
    return row


def cell(row, key, form="%.1f"):
    return form % row[key] if row.get(key) is not None else "-"


def main():
    plait, train = (os.path.abspath(p) for p in sys.argv[1:3])
    print("| ranks | first step after, s | descriptors of a rank, at most | "
          "MiB of rank 0 | of another, at most | bytes sent by rank 0 | by "
          "another, at most | mean | end, s |\n"
          "|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/text", "w", encoding="utf-8") as f:
            f.write(__doc__ * 400)
        subprocess.run([os.path.join(os.path.dirname(plait), "plait-prep"),
                        d + "/text", "--out", d + "/data"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for ranks in map(int, sys.argv[3:]):
            row = measure(plait, train, ranks, d)
            print("| %d | %s | %s | %s | %s | %s | %s | %s | %s |" % (
                ranks, cell(row, "first_step_s"),
                cell(row, "descriptors", "%d"), cell(row, "mib_rank_0"),
                cell(row, "mib_most"), cell(row, "sent_rank_0", "%d"),
                cell(row, "sent_most", "%d"), cell(row, "sent_mean", "%.0f"),
                cell(row, "end_s")), flush=True)


if __name__ == "__main__":
    main()
