#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-train as a user runs it: resuming bit for bit, signals, ranks that
# die, a loss that is no number, sampling.
set -u
train=$top_builddir/plait-train
mpirun=$top_srcdir/tests/lib/mpirun.sh
export OMP_NUM_THREADS=1
command -v mpirun >/dev/null && "$train" --version >/dev/null ||
    { echo "1..0 # SKIP needs mpirun"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n=0

# ok WHAT COMMAND...
ok() {
    local what=$1
    shift
    n=$((n + 1))
    if "$@" >"$dir/check" 2>&1; then
        echo "ok $n - $what"
    else
        echo "not ok $n - $what"
        sed 's/^/# /' "$dir/check" "$dir/out"
    fi
}

# run RANKS ARGS...: output in $dir/out, exit status in $status
run() {
    local ranks=$1
    shift
    if [ "$ranks" = 1 ]; then
        timeout 60 "$train" "$dir/c.yaml" "$@" >"$dir/out" 2>&1 </dev/null
    else
        timeout 60 sh "$mpirun" "$ranks" "$train" "$dir/c.yaml" "$@" \
            >"$dir/out" 2>&1 </dev/null
    fi
    status=$?
}

# The parts of a metrics file that no clock has a hand in.
numbers() {
    sed 's/,"tokens_per_s.*//' "$1"
}

same() {
    diff <(numbers "$1") <(numbers "$2")
}

python3 -B -c '
import sys
sys.path.insert(0, sys.argv[1] + "/tests/parity")
import parity
parity.write_tokens(sys.argv[2] + "/tokens.bin")
parity.write_config(sys.argv[2] + "/c.yaml", "gpt2", sys.argv[2] + "/tokens.bin")
' "$top_srcdir" "$dir" || { echo "1..0 # SKIP needs python3"; exit 0; }

for layout in 1:111 4:221 4:212 4:114; do
    ranks=${layout%:*} l=${layout#*:} ck=$dir/ck-$l
    size="--set parallel.tp=${l:0:1} --set parallel.pp=${l:1:1}"
    size+=" --set parallel.dp=${l:2:1}"
    [ "$l" = 114 ] && size+=" --set parallel.zero=3"
    run "$ranks" $size --metrics "$dir/whole"
    run "$ranks" $size --metrics "$dir/parts" --set checkpoint.dir="$ck" \
        --set checkpoint.every=10
    rm -rf "$ck/step-00000020"
    run "$ranks" $size --metrics "$dir/parts" --set checkpoint.dir="$ck"
    ok "tp,pp,dp=$l: 10 steps and 10 more are 20, bit for bit" \
        same "$dir/whole" "$dir/parts"
    ok "tp,pp,dp=$l: the second run resumed" \
        grep -q "resumed after step 10" "$dir/out"
done

run 4 --set parallel.tp=2 --set parallel.pp=2 --set checkpoint.dir="$ck" \
    --set train.steps=25 --metrics "$dir/other"
ok "another layout goes on from that checkpoint" test $status = 0

run 1 --set checkpoint.dir="$ck" --sample 40 --sample-prompt "ab"
ok "--sample prints text" test "$(head -c 2 "$dir/out")" = ab -a \
    "$(wc -c <"$dir/out")" = 43
mv "$dir/out" "$dir/sample"
run 4 --set parallel.tp=2 --set parallel.pp=2 --set checkpoint.dir="$ck" \
    --sample 40 --sample-prompt "ab"
ok "and the same text in another layout" \
    cmp "$dir/sample" <(tr -d '\r' <"$dir/out")
run 1 --sample 5
ok "--sample without a checkpoint says so" grep -q "no checkpoint" "$dir/out"

run 4 --set parallel.pp=2 --set train.steps=2 --set log.profile="$dir/profile"
ok "log.profile writes a trace per rank" python3 -c '
import json, sys
for rank in range(4):
    events = json.load(open(f"{sys.argv[1]}/rank-{rank:05d}.json"))
    names = [e["name"] for e in events]
    for name in ("forward 0.0", "backward 0.3", "all-reduce", "send",
                 "optimizer", "data"):
        assert name in names, (rank, name)
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                   if e["ph"] == "X" and e["name"].startswith("forward"))
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:]))
' "$dir/profile"

run 2 --set optim.lr=1e6 --set optim.clip=0 --set lr.warmup=0 \
    --set parallel.dp=2
ok "a loss that is no number ends the run" test $status = 1
ok "with one clear line" test "$(grep -c "^plait-train: .*stopped" \
    "$dir/out")" = 1

run 2 --set parallel.dp=2 --metrics "$dir/nowhere/m"
ok "metrics that cannot be written: one line" test $status = 1 -a \
    "$(grep -c '^plait-train: ' "$dir/out")" = 1

# wait_for PATTERN: until it stands in $dir/out
wait_for() {
    local i
    for i in $(seq 300); do
        grep -q "$1" "$dir/out" && return 0
        sleep 0.1
    done
    return 1
}

# Ranks of the run in the background, by their parent mpirun.
ranks_of() {
    pgrep -P "$1" plait-train
}

start() {
    sh "$mpirun" 4 "$train" "$dir/c.yaml" --set train.steps=1000000 \
        --set parallel.tp=2 --set parallel.pp=2 "$@" >"$dir/out" 2>&1 \
        </dev/null &
    pid=$!
    wait_for "step 1/"
}

# ended SECONDS: the run in the background is over
ended() {
    local i
    for i in $(seq $(($1 * 10))); do
        kill -0 "$pid" 2>/dev/null || { wait "$pid"; status=$?; return 0; }
        sleep 0.1
    done
    kill -9 $(ranks_of "$pid") "$pid"
    status=hung
    return 1
}

start --set checkpoint.dir="$dir/term"
kill -TERM $(ranks_of "$pid")
ok "SIGTERM: the run ends" ended 20
ok "in order" test "$status" = 0
ok "after a step" grep -q "stopped after step" "$dir/out"
ok "with a checkpoint" test -e "$(echo "$dir"/term/step-*/manifest.json)"

start
kill -KILL $(ranks_of "$pid" | tail -n 1)
ok "a rank that dies ends the others" ended 20
ok "and the run has failed" test "$status" != 0
echo "1..$n"
