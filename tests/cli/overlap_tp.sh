#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Under sequence parallelism, all-gathers and reduce-scatters run beside the
# matrix products, in forward and in backward. In the traces of two ranks each
# chunk is a separate transfer that is waited for later. The loss is that of one
# process. How much of the time is hidden depends on how cores are scheduled: it
# is printed here, and `make bench` reports it.
set -u
train=$top_builddir/plait-train
command -v mpirun >/dev/null && command -v python3 >/dev/null &&
    "$train" --version >/dev/null ||
    { echo "1..0 # SKIP needs mpirun and python3"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

python3 -B "$top_srcdir/tests/lib/tokens.py" "$dir/tokens.bin"
# 1024 rows: four chunks with 128 rows of each of the two ranks.
cat >"$dir/c.yaml" <<EOF
model: {layers: 4, hidden: 256, heads: 4, vocab: 257, seq_len: 256}
data: {train: $dir/tokens.bin}
train: {steps: 6, global_batch: 4, micro_batch: 4}
log: {metrics: $dir/one.jsonl}
EOF
cat >"$dir/check.py" <<'EOF'
import json, sys
dir, n = sys.argv[1], 0

def ok(good, what):
    global n
    n += 1
    print("ok" if good else "not ok", n, "-", what)

def losses(name):
    return [json.loads(line)["loss"] for line in open(f"{dir}/{name}")]

def hidden(a, stood):
    """Whether the rank did something else for half of the time or more."""
    waited = sum(max(0, min(a[1], s[1]) - max(a[0], s[0])) for s in stood)
    return 2 * waited <= a[1] - a[0]

class Seen:
    def __init__(self):
        self.all = self.beside = 0  # transfers, of which begun to run on
        self.hidden = 0             # ... and did

seen = {(phase, kind): Seen() for phase in ("forward", "backward")
        for kind in ("all-gather", "reduce-scatter")}
for rank in range(2):
    with open(f"{dir}/trace/rank-{rank:05d}.json") as f:
        events = json.load(f)
    tracks = {e["args"]["name"]: e["tid"] for e in events
              if e["name"] == "thread_name"}
    spans = [(e["ts"], e["ts"] + e["dur"], e["name"], e["tid"])
             for e in events if e["ph"] == "X"]
    stood = [s for s in spans if s[3] == tracks["tp"]]
    phases = [s for s in spans if s[3] == tracks["compute"]]
    begun = {e["id"]: e["ts"] for e in events if e["ph"] == "b"}
    moved = [(begun[e["id"]], e["ts"], e["name"]) for e in events
             if e["ph"] == "e" and e["cat"] == "tp"]
    for t in moved + stood:
        phase = next((p[2].split()[0] for p in phases
                      if p[0] <= t[0] and t[1] <= p[1]), None)
        it = seen.get((phase, t[2]))
        if it:
            it.all += 1
            it.beside += len(t) == 3
            it.hidden += hidden(t, stood)
# All but the embedding's sum and gradient travel in four chunks per step.
for (phase, kind), it in seen.items():
    ok(it.all and it.beside >= 0.75 * it.all,
       f"{phase}, {kind}: {it.beside} of {it.all} may run beside the products")
    # On 2 ranks, in 6 steps, four chunks of each: per layer two gathers and two
    # scatters, and one each at its ends; backward gathers twice as often.
    want = {"forward all-gather": 9, "forward reduce-scatter": 9,
            "backward all-gather": 16, "backward reduce-scatter": 8}
    want = 2 * 6 * 4 * want[f"{phase} {kind}"]
    ok(it.beside == want, f"... {want} chunks, each a transfer of its own")
total = sum(it.all for it in seen.values())
did = sum(it.hidden for it in seen.values())
print(f"# {did} of {total} are under way for longer than anybody waits")
one, two = losses("one.jsonl"), losses("two.jsonl")
ok(len(one) == len(two) == 6 and
   all(abs(x - y) <= 2e-5 * x for x, y in zip(one, two)),
   "the loss is that of one process")
print(f"1..{n}")
EOF

timeout 240 "$train" "$dir/c.yaml" >"$dir/out" 2>&1 || sed 's/^/# /' "$dir/out"
timeout 240 sh "$top_srcdir/tests/lib/mpirun.sh" 2 "$train" "$dir/c.yaml" \
    --set parallel.tp=2 --set parallel.sequence=true \
    --set log.profile="$dir/trace" --set log.metrics="$dir/two.jsonl" \
    >"$dir/out" 2>&1 </dev/null || sed 's/^/# /' "$dir/out"
python3 -B "$dir/check.py" "$dir"
