#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a run writes for other programs (TensorBoard's event files, Prometheus'
# text file, the record of its starts) against the metrics file.
set -u
train=$top_builddir/plait-train
command -v python3 >/dev/null && "$train" --version >/dev/null ||
    { echo "1..0 # SKIP needs python3"; exit 0; }
. "$top_srcdir/tests/lib/check.sh"
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
seed=$((RANDOM + 1))
python3 "$top_srcdir/tests/lib/tokens.py" "$dir/tokens.bin" 3000 $seed
python3 "$top_srcdir/tests/lib/tokens.py" "$dir/more.bin" 2000 $((seed + 1))
cat >"$dir/c.yaml" <<EOF
# by heart: Grüße < & > "
model: {layers: 1, hidden: 32, heads: 2, vocab: 257, seq_len: 32}
data: {train: {$dir/tokens.bin: 2, $dir/more.bin: 1},
       val: {news: $dir/tokens.bin, code: $dir/more.bin}}
train: {steps: 6, global_batch: 4, micro_batch: 2, eval_every: 3,
        eval_steps: 1, seed: $seed}
optim: {qk_clip: 50}
checkpoint: {dir: $dir/ck}
log: {metrics: $dir/m.jsonl, tensorboard: $dir/tb, prometheus: $dir/a.prom}
EOF

run() {
    timeout 240 "$train" "$dir/c.yaml" "$@" >"$dir/out" 2>&1 </dev/null
    status=$?
}

run
check "a run of 6 steps" $status
run --set train.steps=10 --resume-anyway train.steps
check "and on to 10" $status
python3 - "$dir/m.jsonl" <<'EOF'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [l["step"] for l in lines if "planned_s" in l] == [6, 10]
assert [lines[i]["saved_step"] for i in (5, 6, 9)] == [6, 6, 10]
assert all(0 < l["max_logit"] < 50 for l in lines)
for l in lines:
    if "planned_s" not in l:
        continue
    p, m = l["planned_s"], l["measured_s"]
    assert list(p) == list(m) == ["step", "products", "attention", "tp", "cp",
                                  "ep", "dp", "bubble", "rest"], p
    for s in p, m:
        assert abs(sum(s.values()) - 2 * s["step"]) < 1e-4 * s["step"], s
    assert m["products"] > 0 and m["attention"] > 0 and m["rest"] > 0
    assert m["tp"] == m["dp"] == m["bubble"] == p["bubble"] == 0
mean = sum(l["step_s"] for l in lines[7:]) / 3
assert abs(lines[-1]["measured_s"]["step"] / mean - 1) < 1e-3
EOF
check "each start ends with plan against actual, and names its checkpoint" $?
cat >"$dir/compare.py" <<'EOF'
import json, math, sys
sys.path.insert(0, sys.argv[1] + "/tests/lib")
where = sys.argv[2]
steps = [json.loads(line) for line in open(where + "/m.jsonl")]
want = {}
for s in steps:
    for name, v in s.items():
        if name in ("step", "time", "planned_s", "measured_s"):
            continue
        if isinstance(v, list):
            v = {str(i): x for i, x in enumerate(v)}
        for key, x in v.items() if isinstance(v, dict) else [("", v)]:
            if x is not None:
                want[s["step"], name + "/" + key if key else name] = x


def same(got, digits):
    assert set(got) == set(want), set(got) ^ set(want)
    for k, x in want.items():
        assert math.isclose(got[k], x, rel_tol=digits), (k, got[k], x)
EOF
cat >"$dir/tb.py" <<'EOF'
import os, sys
exec(open(os.path.dirname(sys.argv[0]) + "/compare.py").read())
import events
all_ = list(events.read(where + "/tb"))
same({(s, t): v for s, t, v in all_ if isinstance(v, float)}, 1e-6)
assert [s for s, t, v in all_ if t is None] == [7]
texts = [v for s, t, v in all_ if t == "configuration"]
assert len(texts) == 2 and "Grüße" in texts[0], texts
assert "--set train.steps=10" in texts[1]
EOF
python3 "$dir/tb.py" "$top_srcdir" "$dir"
check "the events are the metrics, their checksums right" $?
[ "$(ls "$dir/tb" | wc -l)" = 2 ]
check "each start has a file" $?

cat >"$dir/prom.py" <<'EOF'
import json, re, sys
last = json.loads(open(sys.argv[1] + "/m.jsonl").readlines()[-1])
got, typed = {}, set()
for line in open(sys.argv[1] + "/a.prom"):
    if line[0] == "#":
        word, name = line.split()[1:3]
        if word == "TYPE":
            assert name not in typed and line.endswith(" gauge\n")
            typed.add(name)
        continue
    name, labels, value = re.fullmatch(
        r'([a-z_]+)\{((?:[a-z]+="[^"]*",?)+)\} (\S+)\n', line).groups()
    assert name in typed and 'run="a"' in labels, line
    got[name, labels] = float(value)
run = 'run="a"'
for name, field in (("step", "step"), ("loss", "loss"),
                    ("tokens", "tokens"), ("learning_rate", "lr")):
    want = last[field]
    assert abs(got["plait_" + name, run] - want) <= 1e-7 * abs(want), name
assert abs(got["plait_step_timestamp_seconds", run] - last["time"]) < 2
assert got["plait_stage_memory_bytes", run + ',stage="0"'] > 0
evaluated = json.loads(open(sys.argv[1] + "/m.jsonl").readlines()[8])
sets = evaluated["val_loss_sets"]
assert list(sets) == ["news", "code"] and sets["news"] != sets["code"]
assert abs(sum(sets.values()) / 2 - evaluated["val_loss"]) < 1e-6
EOF
python3 "$dir/prom.py" "$dir"
check "log.prometheus has the last step" $?
[ ! -e "$dir/a.prom.partial" ]
check "and nothing half-written is beside it" $?
python3 -c '
import json, sys
a, b = map(json.loads, open(sys.argv[1] + "/m.jsonl.starts"))
assert (a["step"], b["step"], b["steps"]) == (0, 6, 10)
assert a["ranks"] == a["tp"] == 1 and "Grüße" in a["config"]
' "$dir"
check "both starts are on record" $?
mkdir "$dir/"$'\377'
(cd "$dir/"$'\377' && run --set train.steps=2 --set checkpoint.dir=null \
    --set log.tensorboard=null --metrics n.jsonl && exit $status) &&
    python3 -c '
import json, sys
start, = map(json.loads, open(sys.argv[1] + "/n.jsonl.starts"))
assert start["plan"]["dir"] is None and start["steps"] == 2, start
' "$dir/"$'\377'
check "a directory whose name is no text of JSON is left out of them" $?

python3 -c 'import tensorboard, tbparse' 2>/dev/null
if [ $? = 0 ]; then
    cat >"$dir/loader.py" <<'EOF'
import os, sys
exec(open(os.path.dirname(sys.argv[0]) + "/compare.py").read())
from tensorboard.backend.event_processing import event_accumulator
from tbparse import SummaryReader
acc = event_accumulator.EventAccumulator(where + "/tb")
acc.Reload()
same({(e.step, t): e.value for t in acc.Tags()["scalars"]
      for e in acc.Scalars(t)}, 1e-6)
assert len(acc.Tensors("configuration/text_summary"
                       if "configuration/text_summary" in
                       acc.Tags()["tensors"] else "configuration")) == 2
r = SummaryReader(where + "/tb")
same({(row.step, row.tag): row.value for row in r.scalars.itertuples()}, 1e-6)
assert "Grüße" in r.text.value.iloc[0]
EOF
    python3 "$dir/loader.py" "$top_srcdir" "$dir" >"$dir/err" 2>&1
    check "TensorBoard and tbparse read the same" $? ||
        sed 's/^/# /' "$dir/err"
else
    n=$((n + 1))
    echo "ok $n # SKIP needs tensorboard and tbparse"
fi

# Histograms of gradients: in one process their contents follow from the model's
# sizes and the gradient norm; other layouts are compared with that.
cat >"$dir/h.yaml" <<EOF
model: {layers: 2, hidden: 32, heads: 2, vocab: 257, seq_len: 32}
data: {train: $dir/tokens.bin}
train: {steps: 4, global_batch: 4, micro_batch: 2, seed: $seed}
EOF
cat >"$dir/histograms.py" <<'EOF'
import json, math, os, sys
sys.path.insert(0, sys.argv[1] + "/tests/lib")
import events
names = ("min", "max", "num", "sum", "sum_squares", "bucket_limit", "bucket")


def read(where):
    """{(step, tag): histogram}, by TensorBoard's loader where it is there."""
    own = {(s, t): v for s, t, v in events.read(where + "/tb")
           if isinstance(v, dict)}
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ImportError:
        return own
    acc = event_accumulator.EventAccumulator(
        where + "/tb", size_guidance={"histograms": 0})  # all, not one
    acc.Reload()
    got = {(e.step, t): {n: getattr(e.histogram_value, n) for n in names}
           for t in acc.Tags()["histograms"] for e in acc.Histograms(t)}
    assert got == own
    return got


def check(where, got):
    norm = {s["step"]: s["grad_norm"] for s in map(json.loads,
                                                   open(where + "/m.jsonl"))}
    start, = map(json.loads, open(where + "/m.jsonl.starts"))
    for step in {s for s, _ in got}:
        all_ = [h for (s, _), h in got.items() if s == step]
        assert sum(h["num"] for h in all_) == start["parameters"]
        whole = math.sqrt(sum(h["sum_squares"] for h in all_))
        assert math.isclose(whole, norm[step], rel_tol=1e-5), (whole, norm)
    for key, h in got.items():
        limit, count = h["bucket_limit"], h["bucket"]
        assert len(limit) == len(count) and limit == sorted(set(limit)), key
        assert sum(count) == h["num"] and min(count) >= 0, key
        assert count[0] > 0 and count[-1] > 0, key
        assert h["min"] <= limit[0] and h["max"] <= limit[-1], key
        assert h["min"] < 0 < h["max"] and limit[-1] < 1.2 * h["max"], key


def same(got, want):
    assert set(got) == set(want), set(got) ^ set(want)
    for key, b in want.items():
        a, most = got[key], max(-b["min"], b["max"])
        assert a["num"] == b["num"], key
        assert math.isclose(a["sum_squares"], b["sum_squares"],
                            rel_tol=1e-5), key
        assert abs(a["sum"] - b["sum"]) < 1e-5 * math.sqrt(
            b["num"] * b["sum_squares"]), key
        for name in "min", "max":
            assert abs(a[name] - b[name]) < 1e-5 * most, key


where = sys.argv[2:]
first = read(where[0])
check(where[0], first)
if len(where) == 1:
    h, vocab, seq = 32, 257, 32
    want = {"embedding": (vocab + seq) * h, "head": 2 * h,
            "layer_0": 12 * h * h + 13 * h, "layer_1": 12 * h * h + 13 * h}
    assert {k: v["num"] for k, v in first.items()} == {
        (s, "gradients/" + t): n for t, n in want.items() for s in (2, 4)}
for other in where[1:]:
    got = read(other)
    check(other, got)
    same(got, first)
EOF

# histograms NAME RANKS SETTINGS...: train with histograms
histograms() {
    local at=$dir/$1 ranks=$2 set=()
    mkdir "$at"
    for one in "${@:3}" log.metrics="$at/m.jsonl" log.tensorboard="$at/tb"; do
        set+=(--set "$one")
    done
    set -- "$train" "$dir/h.yaml" "${set[@]}"
    [ "$ranks" = 1 ] || set -- sh "$top_srcdir/tests/lib/mpirun.sh" "$ranks" "$@"
    timeout 240 "$@" >"$dir/out" 2>&1 </dev/null && return 0
    sed 's/^/# /' "$dir/out"
    return 1
}

histograms every-2 1 log.histograms=2 &&
    python3 "$dir/histograms.py" "$top_srcdir" "$dir/every-2"
check "histograms of gradients have each parameter once, and their norm" $?

# compared NAME "LAYOUT..." SETTINGS...: compare layouts with one process, in
# the first step
compared() {
    local name=$1 layouts=$2 all=("$dir/$1-111") layout
    shift 2
    set -- "$@" train.steps=1 log.histograms=1
    histograms "$name-111" 1 "$@" || return 1
    for layout in $layouts; do
        histograms "$name-$layout" 2 "$@" ${layout//,/ } || return 1
        all+=("$dir/$name-$layout")
    done
    python3 "$dir/histograms.py" "$top_srcdir" "${all[@]}"
}

if command -v mpirun >/dev/null; then
    compared gpt2 "parallel.tp=2 parallel.pp=2 parallel.zero=3"
    check "histograms with tp, with pp and with dp and ZeRO are the same" $?
    compared llama "parallel.tp=2,parallel.sequence=true parallel.zero=1" \
        model.family=llama model.kv_heads=1
    check "and of heads that several ranks hold" $?
else
    for i in 1 2; do
        n=$((n + 1))
        echo "ok $n # SKIP needs mpirun"
    done
fi
# Transfers of an evaluation are not counted for a step.
if command -v mpirun >/dev/null; then
    histograms evals 2 parallel.tp=2 train.steps=6 train.eval_every=2 \
        train.eval_steps=3 data.val="$dir/tokens.bin" && python3 -c '
import json, sys
steps = [json.loads(line)["comm_bytes"] for line in open(sys.argv[1])]
assert len(steps) == 6 and steps[1]["tp"] > 0, steps
assert all(s == steps[1] for s in steps[1:]), steps
' "$dir/evals/m.jsonl"
    check "a step behind an evaluation has sent no more than others" $?
else
    n=$((n + 1))
    echo "ok $n # SKIP needs mpirun"
fi
timeout 240 "$train" "$dir/h.yaml" --set log.histograms=1 >"$dir/out" 2>&1
[ $? = 1 ] && [ "$(wc -l <"$dir/out")" = 1 ] &&
    grep -q '^plait-train: .*log.histograms: log.tensorboard must' "$dir/out"
check "log.histograms without log.tensorboard: one line" $?

# The save interval of checkpoint.every=auto, and how the time of all starts was
# spent: the second start does not begin where the first one ended.
run --resume none --metrics "$dir/g.jsonl" --set checkpoint.dir="$dir/gk" \
    --set checkpoint.every=auto --set train.steps=25
[ $status = 0 ] && [ -e "$dir/gk/step-00000010" ] &&
    grep -q "^checkpoint.every auto: [0-9]* steps (.* s); a checkpoint costs" \
        "$dir/out"
check "checkpoint.every auto: the first after ten steps, then as it costs" $?
rm -r "$dir/gk/step-00000025"
ln -sfn step-00000010 "$dir/gk/latest"
run --metrics "$dir/g.jsonl" --set checkpoint.dir="$dir/gk" \
    --set checkpoint.every=auto --set train.steps=600 \
    --resume-anyway train.steps
cat >"$dir/goodput.py" <<'EOF'
import json, sys
starts = [json.loads(s) for s in open(sys.argv[1] + ".starts")]
steps = [json.loads(s) for s in open(sys.argv[1])]
assert [s["failed"] for s in starts] == [False, True], starts
assert starts[0]["lost_s"] == 0 and 0 < starts[1]["lost_s"] < 100
assert 0 < starts[1]["waited_s"] < 300
assert starts[1]["opened"] < starts[1]["time"] + 1
last = steps[-1]
assert last["step"] == 600 and sum(s.get("save_s", 0) for s in steps) > 0
wall = last["time"] - starts[0]["opened"]
if wall > 1.2:
    good = sum(s["step_s"] for s in steps) / wall
    assert abs(last["goodput"] - good) < 0.1, (last, good)
    assert 0 < last["goodput_expected"] <= 1
EOF
python3 "$dir/goodput.py" "$dir/g.jsonl"
check "goodput over both starts, and what the second made again" $?

# Two runs are equal bit by bit.
det=(--set train.deterministic=true --metrics "$dir/d.jsonl"
    --set checkpoint.dir="$dir/dk" --set lr.schedule=constant)
hash_of() {
    rm -rf "$dir/dk"
    run --resume none "${det[@]}" "$@"
    grep '^state after step 6: [0-9a-f]*$' "$dir/out"
}
first=$(hash_of)
[ -n "$first" ] && [ "$first" = "$(hash_of)" ] &&
    [ "$first" != "$(hash_of --set train.seed=$((seed + 1)))" ]
check "train.deterministic: two runs have one hash, another seed another" $?
rm -rf "$dir/dk"
run --resume none "${det[@]}" --set train.steps=3
run "${det[@]}"
grep -q "^resumed after step 3" "$dir/out" && grep -qxF "$first" "$dir/out"
check "... and so has one that was interrupted" $?

# Ranks that are bound to nothing divide the cores.
env -u OMP_NUM_THREADS timeout 240 "$top_builddir/plait" run --np 2 --pin=none \
    --dp=2 -- "$train" "$dir/c.yaml" --resume none --device cpu \
    --metrics "$dir/t.jsonl" --set checkpoint.dir= >"$dir/out" 2>&1 </dev/null
status=$?
python3 - "$dir/t.jsonl.starts" <<'EOF'
import json, os, sys
start = json.loads(open(sys.argv[1]).readline())
mine, online = len(os.sched_getaffinity(0)), os.sysconf("SC_NPROCESSORS_ONLN")
want = mine if mine < online else max(1, online // 2)
assert start["plan"]["threads"] == want, (start, want)
EOF
[ $? = 0 ] && [ $status = 0 ]
check "two ranks that are not bound have half of the cores' threads each" $?

# A file that cannot be written: no such directory, or a full disk.
run --resume none --set log.prometheus="$dir/nowhere/a.prom"
[ $status = 1 ] && [ "$(grep -c '^plait-train: log.prometheus: .*No such' \
    "$dir/out")" = 1 ]
check "log.prometheus in no directory: one line" $?
run --resume none --set log.tensorboard="$dir/c.yaml/tb"
[ $status = 1 ] && [ "$(grep -c '^plait-train: log.tensorboard: .*Not a dir' \
    "$dir/out")" = 1 ]
check "log.tensorboard where a file is: one line" $?
echo "1..$n"
