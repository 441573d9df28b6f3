#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-train as a user runs it: resuming bit for bit, checkpoints beside
# training, on full disks and when killed, corrupt ones, signals, ranks that
# die, a loss that is no number, sampling.
set -u
train=$top_builddir/plait-train
mpirun=$top_srcdir/tests/lib/mpirun.sh
. "$top_srcdir/tests/lib/until.sh"
export OMP_NUM_THREADS=1
command -v mpirun >/dev/null && "$train" --version >/dev/null ||
    { echo "1..0 # SKIP needs mpirun"; exit 0; }
dir=$(mktemp -d) || exit 1
# Open MPI leaves the shared memory of ranks that are killed.
shm=$(mktemp -d /dev/shm/plait.XXXXXX) || exit 1
export OMPI_MCA_btl_vader_backing_directory=$shm
trap 'rm -rf "$dir" "$shm"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out

# run RANKS ARGS...: output in $dir/out, exit status in $status
run() {
    local ranks=$1
    shift
    if [ "$ranks" = 1 ]; then
        timeout 240 "$train" "$dir/c.yaml" "$@" >"$dir/out" 2>&1 </dev/null
    else
        timeout 240 sh "$mpirun" "$ranks" "$train" "$dir/c.yaml" "$@" \
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

python3 -B "$top_srcdir/tests/lib/small_model.py" "$dir" gpt2 ||
    { echo "1..0 # SKIP needs python3"; exit 0; }

for layout in 1:111 4:221 4:212 4:114; do
    ranks=${layout%:*} l=${layout#*:} ck=$dir/ck-$l
    size="--set parallel.tp=${l:0:1} --set parallel.pp=${l:1:1}"
    size+=" --set parallel.dp=${l:2:1} --set train.steps=20"
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

# Written beside the steps that follow, a checkpoint is the same.
save=(4 --set parallel.tp=2 --set parallel.dp=2 --set checkpoint.every=5
    --set checkpoint.keep=0 --set train.steps=20)
run "${save[@]}" --set checkpoint.dir="$dir/blocking" \
    --set checkpoint.async=false
run "${save[@]}" --set checkpoint.dir="$dir/async"
ok "checkpoint.async: the same four checkpoints, bit for bit" \
    diff -r "$dir/blocking" "$dir/async"

# A disk that needs 2 s to sync the first file of each thread.
slow="strace -f -qq -o /dev/null -e trace=fsync
    -e inject=fsync:delay_enter=2000000:when=1"
if $slow true 2>/dev/null; then
    timeout 240 $slow "$train" "$dir/c.yaml" --set train.steps=100 \
        --set checkpoint.every=50 --set checkpoint.dir="$dir/slow" \
        --set log.profile="$dir/beside" >"$dir/out" 2>&1
    ok "steps go on while a checkpoint is written" python3 -c '
import json, sys
events = json.load(open(sys.argv[1] + "/rank-00000.json"))
begin, end = ([e["ts"] for e in events if e["name"] == "write" and
               e["ph"] == p] for p in "be")
steps = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == "step"]
beside = sum(begin[0] < a and b < end[0] for a, b in steps)
assert end[0] - begin[0] > 2e6 and beside > 0, (begin, end, beside)
' "$dir/beside"
else
    n=$((n + 1))
    echo "ok $n # SKIP needs strace, and leave to trace"
fi

# Room for one checkpoint and half of the next.
full='mount -t tmpfs -o size=$0 none "$1" && shift && exec "$@"'
size=$(du -sk "$dir/async/step-00000005" | cut -f 1)
mkdir "$dir/small"
unshare=$(for u in "unshare -m" "unshare -rm"; do
    $u sh -c "$full" 1m "$dir/small" true 2>/dev/null && echo "$u" && break
done)
if [ -n "$unshare" ]; then
    timeout 240 $unshare sh -c "$full" $((size * 3 / 2))k "$dir/small" \
        sh -c '"$@"; echo "exit $?"; ls -A "$0"' "$dir/small" \
        sh "$mpirun" 4 "$train" "$dir/c.yaml" --set parallel.tp=2 \
        --set parallel.dp=2 --set checkpoint.dir="$dir/small" \
        --set checkpoint.every=5 >"$dir/out" 2>&1 </dev/null
    ok "a full disk fails the run" grep -q "^exit 1" "$dir/out"
    ok "at the end, with one line" test "$(grep -v "could not be saved" \
        "$dir/out" | grep -c '^plait-train: .*No space left')" = 1
    ok "the save before was said, and tried again" test "$(grep -c \
        '^plait-train: .*could not be saved: .*No space left' "$dir/out")" = 1
    ok "and the checkpoint before is all that is left" \
        test "$(sed '1,/^exit/d' "$dir/out" | tr '\n' ' ')" = \
        "latest step-00000005 "
else
    n=$((n + 1))
    echo "ok $n # SKIP needs leave to mount"
fi

# Garbled ones are passed over, aloud, on all ranks.
ck=$dir/async
truncate -s -1 "$ck/step-00000020/rank-00000.safetensors"
rm "$ck/step-00000015/manifest.json"
run "${save[@]}" --set checkpoint.dir="$ck"
ok "the newest that is whole" grep -q "resumed after step 10" "$dir/out"
ok "says what it skipped" test "$(grep -c \
    "^plait-train: checkpoint of step .*skipped" "$dir/out")" = 2
ok "once" test "$(grep -c "^plait-train:" "$dir/out")" = 2
ok "and why" grep -q "step 20 skipped: .*truncated or changed" "$dir/out"
ok "and writes them again" diff -r "$dir/blocking" "$ck"
rm -f "$ck"/step-*/manifest.json
run "${save[@]}" --set checkpoint.dir="$ck"
ok "none is whole: refused" test $status = 1 -a "$(grep -c \
    "^plait-train: .*: none of the 4 checkpoints is whole" "$dir/out")" = 1
run "${save[@]}" --set checkpoint.dir="$ck" --resume none
ok "--resume none starts anew" diff -r "$dir/blocking" "$ck"

# A run that is left for an older checkpoint: what it saved later stays, and
# is not gone on from.
run "${save[@]}" --set checkpoint.dir="$ck" --resume "$ck/step-00000005" \
    --set train.steps=8
ok "from an older one to step 8" test "$(readlink "$ck/latest")" = \
    step-00000008 -a -d "$ck/step-00000020"
run "${save[@]}" --set checkpoint.dir="$ck"
ok "auto goes on from there" grep -q "resumed after step 8" "$dir/out"
ok "and says what it passes over" test "$(grep -c \
    "^plait-train: .*passed over: 3, of a run that was left" "$dir/out")" = 1
rm -r "$ck"/step-00000005 "$ck"/step-00000008 "$ck"/step-0000001?
ln -sfn step-00000008 "$ck/latest"
run "${save[@]}" --set checkpoint.dir="$ck"
ok "where nothing is left of it none is taken" test $status = 1 -a \
    "$(grep -c "^plait-train: .*nothing is left of the" "$dir/out")" = 1
ck=$dir/ck-114

run 4 --set parallel.tp=2 --set parallel.pp=2 --set checkpoint.dir="$ck" \
    --set train.steps=25 --metrics "$dir/other"
ok "another layout goes on from that checkpoint" test $status = 0

run 1 --set checkpoint.dir="$ck" --sample 40 --sample-prompt "ab"
# Bytes that are no UTF-8 become U+FFFD, several that begin a character one.
letters=$(LC_ALL=C.UTF-8 wc -m <"$dir/out")
ok "--sample prints text" test "$(head -c 2 "$dir/out")" = ab -a \
    "$letters" -gt 20 -a "$letters" -le 43
mv "$dir/out" "$dir/sample"
run 4 --set parallel.tp=2 --set parallel.pp=2 --set checkpoint.dir="$ck" \
    --sample 40 --sample-prompt "ab"
ok "and the same text in another layout" \
    cmp "$dir/sample" <(tr -d '\r' <"$dir/out")
run 1 --sample 5
ok "--sample without a checkpoint says so" grep -q "no checkpoint" "$dir/out"

run 4 --set parallel.pp=2 --set train.steps=2 --set log.profile="$dir/profile" \
    --set checkpoint.dir="$dir/profiled"
ok "log.profile writes a trace per rank" python3 -c '
import json, sys
for rank in range(4):
    events = json.load(open(f"{sys.argv[1]}/rank-{rank:05d}.json"))
    names = [e["name"] for e in events]
    lanes = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes >= {"compute", "world", "dp-cp", "pp", "data", "optimizer",
                     "checkpoint", "run"}, lanes
    assert all(e["pid"] == rank + 1 and e.get("tid", 1) > 0 for e in events)
    for name in ("forward 0.0", "backward 0.3", "all-reduce", "send",
                 "optimizer", "data"):
        assert name in names, (rank, name)
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                   if e["ph"] == "X" and e["name"].startswith("forward"))
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:]))
' "$dir/profile"
ln -sf /dev/full "$dir/profile/rank-00001.json"
run 2 --set parallel.dp=2 --set train.steps=1 --set log.profile="$dir/profile"
ok "a trace that cannot be written fails the run" test $status = 1
ok "and is named once" test "$(grep -c \
    "log.profile: $dir/profile/rank-00001.json: No space left" "$dir/out")" = 1
ok "older ranks' traces do not stay beside it" test \
    "$(cd "$dir/profile" && echo *)" = "rank-00000.json rank-00001.json"

run 2 --set optim.lr=1e6 --set optim.clip=0 --set lr.warmup=0 \
    --set parallel.dp=2
ok "a loss that is no number ends the run" test $status = 1
ok "with one clear line" test "$(grep -c "^plait-train: .*stopped" \
    "$dir/out")" = 1

run 2 --set parallel.dp=2 --metrics "$dir/nowhere/m"
ok "metrics that cannot be written: one line" test $status = 1 -a \
    "$(grep -c '^plait-train: ' "$dir/out")" = 1

run 2 --set parallel.dp=2 --metrics /dev/full --set checkpoint.dir="$dir/full"
ok "a full disk for the metrics: one line" test $status = 1 -a "$(grep -c \
    '^plait-train: log.metrics: No space left' "$dir/out")" = 1
ok "and what was trained is saved" test -e \
    "$(echo "$dir"/full/step-*/manifest.json)"

# Ranks of the run in the background, by their parent mpirun.
ranks_of() {
    pgrep -P "$1" plait-train
}

start() {
    : >"$dir/out"
    sh "$mpirun" 4 "$train" "$dir/c.yaml" --set train.steps=1000000 \
        --set parallel.tp=2 --set parallel.pp=2 "$@" >"$dir/out" 2>&1 \
        </dev/null &
    pid=$!
    until_true grep -q "step 1/\|resumed" "$dir/out"
}

# ended SECONDS: the run in the background is over
ended() {
    if until_true eval '! kill -0 "$pid"'; then
        wait "$pid"
        status=$?
        return 0
    fi
    kill -9 $(ranks_of "$pid") "$pid"
    status=hung
    return 1
}

for signal in TERM USR1; do
    start --set checkpoint.dir="$dir/$signal"
    kill -$signal $(ranks_of "$pid")
    ok "SIG$signal: the run ends" ended 20
    ok "in order" test "$status" = 0
    ok "after a step" grep -q "stopped after step" "$dir/out"
    ok "with a checkpoint" test -e \
        "$(echo "$dir/$signal"/step-*/manifest.json)"
done

# What is requeued goes on, as often as it takes: each life's metrics follow
# the last one's.
rm -rf "$dir/TERM" "$dir/lives"
for life in 1 2 3; do
    start --set checkpoint.dir="$dir/TERM" --metrics "$dir/lives"
    sleep 0.$life
    kill -USR1 $(ranks_of "$pid")
    ended 20
done
ok "three lives of a run log every step once" python3 -c '
import json, sys
steps = [json.loads(line)["step"] for line in open(sys.argv[1])]
assert steps == list(range(1, len(steps) + 1)), steps
' "$dir/lives"
ok "and the last one went on" grep -q "resumed after step" "$dir/out"

# Killed at any time, in the middle of a save too: what is in place is whole.
for i in 1 2 3 4 5; do
    start --set checkpoint.dir="$dir/kill" --set checkpoint.every=1
    sleep 0.$((i * i * 3 % 10))
    [ $i -lt 5 ] || until_true test -e "$dir/kill/latest"
    kill -KILL $(ranks_of "$pid")
    ended 20
done
run 4 --set parallel.tp=2 --set parallel.pp=2 \
    --set checkpoint.dir="$dir/kill" --sample 1
ok "killed five times, there is a checkpoint to go on from" \
    test $status = 0 -a -n "$(echo "$dir"/kill/step-*/manifest.json)"
ok "that is the newest" test "$(grep -c skipped "$dir/out")" = 0

start
kill -KILL $(ranks_of "$pid" | tail -n 1)
ok "a rank that dies ends the others" ended 20
ok "and the run has failed" test "$status" != 0

# mpirun lets the others go on, and they notice by themselves.
OMPI_MCA_orte_enable_recovery=1
export OMPI_MCA_orte_enable_recovery
start
dead=$(ranks_of "$pid" | sed -n 2p)
kill -KILL "$dead"
ok "ranks that are left alone end" ended 20
ok "and one of them says why, once" test 1 = \
    "$(grep -c "rank [0-3] (process $dead of this node) has ended" "$dir/out")"
unset OMPI_MCA_orte_enable_recovery

# all_reduce auto goes by the site's figures: where messages between nodes are
# slow to start a sum crosses them in steps, where those inside are it does not.
nodes=$top_srcdir/tests/lib/nodes.sh
echo 'gpu_types: {cpu: {nic_us: 10000, link_us: 1}}' >"$dir/far.yaml"
echo 'gpu_types: {cpu: {nic_us: 1, link_us: 10000}}' >"$dir/near.yaml"
echo 'network: {sharp: 3}' >"$dir/wrong.yaml"
on_nodes() {
    PLAIT_SITE=$dir/$1.yaml timeout 240 sh "$mpirun" 4 sh "$nodes" 2 1 1 4 1 1 \
        "$train" "$dir/c.yaml" --set train.steps=2 --metrics "$dir/m" \
        >"$dir/out" 2>&1 </dev/null
}
ok "a site whose network is slow to start" on_nodes far
ok "sums in steps" grep -q '"dp-cp-across":' "$dir/m"
ok "a site whose nodes are" on_nodes near
ok "sums at once" grep -q '"dp-cp":' "$dir/m"
on_nodes wrong
ok "a site file that is wrong is refused by one line" \
    test 1 = "$(grep -c 'wrong.yaml:1: .*sharp' "$dir/out")"
echo "1..$n"
