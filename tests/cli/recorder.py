#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write dumps in the format of torch's flight recorder (2.10) of four ranks,
tp 2 and dp 2, that hang in one way.
Usage: recorder.py WAY PREFIX"""
import pickle
import sys

WAY, PREFIX = sys.argv[1:]
T0 = 1_790_000_000_000_000_000
GROUPS = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("tp", [0, 1]),
          "2": ("tp", [2, 3]), "3": ("dp", [0, 2]), "4": ("dp", [1, 3])}


class Rank:
    def __init__(self, rank):
        self.rank, self.entries, self.seq = rank, [], {}

    def op(self, what, kind="nccl:all_reduce", n=1000, done=True,
           at=0, line=12):
        name = next(k for k, (desc, ranks) in GROUPS.items()
                    if desc == what and self.rank in ranks)
        p2p = "->" in kind or "<-" in kind
        seq = self.seq[name, p2p] = self.seq.get((name, p2p), 0) + 1
        self.entries.append({
            "frames": [{"filename": "/x/torch/distributed/c10d.py",
                        "line": 1, "name": "all_reduce"},
                       {"filename": "/home/user/train.py", "line": line,
                        "name": "step"}],
            "record_id": len(self.entries), "pg_id": int(name),
            "process_group": (name, what),
            "collective_seq_id": 0 if p2p else seq,
            "p2p_seq_id": seq if p2p else 0, "op_id": seq,
            "profiling_name": kind,
            "time_created_ns": T0 + len(self.entries) * 10**6 + at * 10**9,
            "input_sizes": [[n]], "input_dtypes": ["Float"],
            "output_sizes": [[n]], "output_dtypes": ["Float"],
            "state": "completed" if done else "started",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "retired": done, "timeout_ms": 600000, "is_p2p": p2p})

    def write(self):
        dump = {"version": "2.10", "comm_lib_version": "2.28",
                "pg_config": {k: {"name": k, "desc": d, "ranks": str(r)}
                              for k, (d, r) in GROUPS.items()},
                "pg_status": {}, "entries": self.entries}
        with open(f"{PREFIX}{self.rank}", "wb") as file:
            pickle.dump(dump, file, protocol=2)


ranks = [Rank(i) for i in range(4)]
for r in ranks:
    for _ in range(3):
        r.op("tp")
        r.op("dp")
        r.op("default_pg")
    if WAY == "loader" and r.rank == 2:
        r.entries[-1]["frames"][1]["line"] = 77
    elif WAY == "skips" and r.rank == 3:
        r.op("dp", done=False, at=5)
    elif WAY == "sizes":
        r.op("tp", n=500 if r.rank == 1 else 1000, done=r.rank > 1, at=5)
        if r.rank > 1:
            r.op("dp", done=False, at=6)
    elif WAY == "message" and r.rank == 0:
        r.op("dp", kind="nccl:recv 0<-2", done=False, at=5)
    elif WAY == "message" and r.rank == 2:
        pass
    elif WAY == "message":
        r.op("default_pg", done=False, at=6)
    else:
        # 0 and 1 have completed the collective of their tp group; 2 is late in
        # its
        early = r.rank < 2
        r.op("tp", done=early, at=5)
        if early:
            r.op("dp", done=False, at=6)
for r in ranks:
    if not (WAY == "missing" and r.rank == 2):
        r.write()
