#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gradients are reduced while backward computes: traces of two ranks, the
# metrics and the summary.
set -u
train=$top_builddir/plait-train
command -v mpirun >/dev/null && command -v python3 >/dev/null &&
    "$train" --version >/dev/null ||
    { echo "1..0 # SKIP needs mpirun and python3"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

python3 -B "$top_srcdir/tests/lib/tokens.py" "$dir/tokens.bin"
cat >"$dir/c.yaml" <<EOF
model: {layers: 6, hidden: 256, heads: 4, vocab: 257, seq_len: 128}
data: {train: $dir/tokens.bin}
train: {steps: 8, global_batch: 8, micro_batch: 4}
parallel: {bucket_mib: 1}
log: {profile: $dir/trace, metrics: $dir/m.jsonl}
EOF
cat >"$dir/check.py" <<'EOF'
import json, sys
dir, n = sys.argv[1], 0

def ok(good, what):
    global n
    n += 1
    print("ok" if good else "not ok", n, "-", what)

for rank in range(2):
    with open(f"{dir}/trace/rank-{rank:05d}.json") as f:
        events = json.load(f)
    backward = [(e["ts"], e["ts"] + e["dur"]) for e in events
                if e["ph"] == "X" and e["name"].startswith("backward")]
    begun, moved = {}, []
    for e in events:
        if e["ph"] == "b" and e["name"] == "all-reduce":
            begun[e["id"]] = e["ts"]
        elif e["ph"] == "e" and e["name"] == "all-reduce":
            moved.append((begun[e["id"]], e["ts"]))
    ok(len(backward) == 8 and len(moved) >= 3 * 8,
       f"rank {rank}: 8 backwards and several buckets in each")
    # How many depends on how cores are scheduled; if all-reduces began only
    # after backward, there would be none.
    beside = sum(any(s[0] <= m[0] < s[1] for s in backward) for m in moved)
    print(f"# {beside} of {len(moved)} all-reduces begin inside backward")
    ok(beside > 0, f"rank {rank}: gradients travel beside backward")
steps = [json.loads(line) for line in open(dir + "/m.jsonl")]
ok(all(s["comm_hidden_s"] >= 0 and s["comm_s"] > 0 for s in steps) and
   sum(s["comm_hidden_s"] for s in steps) > 0,
   "the metrics tell hidden from exposed communication")
ok(len({s["mem_bytes"] for s in steps}) == 1,
   "no step takes more memory than the first")
out = open(dir + "/out").read().split("\n")
rows = {(l[:13].strip(), l[13:37].strip()) for l in out}
ok(all(k in rows for k in [("compute", "forward"), ("compute", "backward"),
                           ("optimizer", ""), ("data", ""),
                           ("dp-cp", "wait"), ("run", "step")]),
   "the summary has every phase")
shares = [float(l.split()[-1][:-1]) for l in out
          if l.endswith("%") and not l.startswith(" ")]
ok(99 < sum(shares) < 101, "its shares add up to the whole")
print(f"1..{n}")
EOF

timeout 240 sh "$top_srcdir/tests/lib/mpirun.sh" 2 "$train" "$dir/c.yaml" \
    --profile-summary >"$dir/out" 2>&1 </dev/null || sed 's/^/# /' "$dir/out"
python3 -B "$dir/check.py" "$dir"
