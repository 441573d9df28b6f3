#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a run writes for other programs: TensorBoard's event files, Prometheus'
# text file, and the record of its starts, against the metrics file.
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
checkpoint: {dir: $dir/ck}
log: {metrics: $dir/m.jsonl, tensorboard: $dir/tb, prometheus: $dir/a.prom}
EOF

run() {
    timeout 240 "$train" "$dir/c.yaml" "$@" >"$dir/out" 2>&1 </dev/null
    status=$?
}

run
check "a run of 6 steps" $status
run --set train.steps=10
check "and on to 10" $status
cat >"$dir/compare.py" <<'EOF'
import json, math, sys
sys.path.insert(0, sys.argv[1] + "/tests/lib")
where = sys.argv[2]
steps = [json.loads(line) for line in open(where + "/m.jsonl")]
want = {}
for s in steps:
    for name, v in s.items():
        if name in ("step", "time"):
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

# The disk is full, or there is none.
run --resume none --set log.prometheus="$dir/nowhere/a.prom"
[ $status = 1 ] && [ "$(grep -c '^plait-train: log.prometheus: .*No such' \
    "$dir/out")" = 1 ]
check "log.prometheus in no directory: one line" $?
run --resume none --set log.tensorboard="$dir/c.yaml/tb"
[ $status = 1 ] && [ "$(grep -c '^plait-train: log.tensorboard: .*Not a dir' \
    "$dir/out")" = 1 ]
check "log.tensorboard where a file is: one line" $?
echo "1..$n"
