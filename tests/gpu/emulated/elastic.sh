#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait run --elastic on emulated GPUs over NCCL: during training ranks are
# killed or stopped, or a GPU fails, and the other ranks go on, to the losses of
# an undisturbed run: in the same processes, and where GPUs read each other's
# memory in processes that begin anew.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
unset PLAIT_NCCL_WINDOWS # as a user has it
. "$top_srcdir/tests/lib/until.sh"
plait=$top_builddir/plait
export OMP_NUM_THREADS=1 EMULATED_GPUS=4
unset CUDA_VISIBLE_DEVICES per_node program
dir=$(mktemp -d) || exit 1
pid=
trap '[ -n "$pid" ] && kill -9 $pid 2>/dev/null; rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out
steps=24
RANDOM=${PLAIT_TEST_SEED:=$$}
echo "# PLAIT_TEST_SEED=$PLAIT_TEST_SEED"

"$top_builddir/plait-prep" "$top_srcdir/LICENSE" --out "$dir/data" >/dev/null ||
    exit 99
cat >"$dir/c.yaml" <<END
model: {family: gpt2, layers: 2, hidden: 32, heads: 2, vocab: 257, seq_len: 8}
data: {train: "$dir/data/train.bin"}
train: {steps: $steps, global_batch: 6, micro_batch: 1, seed: 7}
optim: {lr: 1.0e-3}
lr: {warmup: 1}
END

# begin RANKS LAYOUT ARGS...: train in the background; $pid is the launcher
begin() {
    rm -rf "$dir/ck" "$dir"/m* "$dir"/pid.* "$dir"/calls.* "$dir"/fault.*
    : >"$dir/m"
    timeout -k 9 240 "$plait" run --elastic --np "$1" --pin=none $2 -- sh -c \
        'who=${PLAIT_SPARE:+s}${PLAIT_SPARE:-$PLAIT_RANK}
        echo $$ >"$0/pid.$who"
        [ -z "$per_node" ] ||
            export EMULATED_NODE=$((PLAIT_RANK / per_node + 1))
        EMULATED_CALLS=$0/calls.$who EMULATED_FAULT=$0/fault.$who \
            exec "$@" >>"$0/out" 2>&1' "$dir" "${program:-$emulated/plait-train}" \
        "$dir/c.yaml" --device cuda --set checkpoint.dir="$dir/ck" \
        --metrics "$dir/m" "${@:3}" >"$dir/out" 2>&1 </dev/null &
    pid=$!
}

steps_made() { [ "$(wc -l <"$dir/m")" -ge "$1" ] || ! kill -0 $pid; }

# in_mid_run COMMAND...: run it during one of the middle steps
in_mid_run() {
    until_true steps_made $((RANDOM % 8 + 7))
    "$@"
}

finish() {
    wait $pid
    status=$?
    pid=
}

close_by() {
    python3 -B "$top_srcdir/tests/lib/same_losses.py" "$@" $steps
}

# Each process has destroyed its streams, events, graphs and communicators, and
# made its last step, if it made one, by graphs.
all_clean() {
    ! grep "^left-.* [^0]" "$dir"/calls.* &&
        ! grep -l "^cuda" "$dir"/calls.[0-9]* |
        xargs grep -L "^cudaGraphLaunch" | grep .
}

# mended WHAT RANKS: the run ends well; RANKS: how many must be left then
mended() {
    local left=$2
    finish
    ok "$1: ends well" test $status = 0
    ok "goes on without the lost one" grep -q "is gone in step" "$dir/out"
    ok "to the losses of a run that nobody hurt" close_by "$dir/one" "$dir/m"
    ok "nothing of the old world is left, and steps are graphs" all_clean
    ok "as many as were left have ended well" eval \
        'test "$(ls "$dir"/calls.* | wc -l)" -ge "$left"'
    ok "no folder or file stays claimed" eval \
        '! ls "$dir/ck/.running" "$dir/m.running"'
    grep "is gone in step\|back at step" "$dir/out" | sed 's/^/#   /'
}

kill_rank() { kill "-$1" "$(cat "$dir/pid.$2")"; }

state() { grep "^state after step $steps: " "$dir/out"; }

begin 2 --tp=2 --set train.deterministic=true
finish
ok "a run that nobody hurts" eval 'test $status = 0 && all_clean'
cp "$dir/m" "$dir/one"
bits=$(state)

begin 3 --dp=3 --set checkpoint.every=5
in_mid_run kill_rank 9 $((RANDOM % 3))
mended "dp 3, one is killed" 2

begin 2 "--tp=2 --spares=1" --set checkpoint.memory=4 \
    --set checkpoint.every=1000 --set train.deterministic=true
in_mid_run kill_rank 9 $((RANDOM % 2))
mended "tp 2 and a spare one, one is killed" 2
ok "whose seat the spare one takes, from copies in memory" grep -q \
    "dp 1 of 1 (1 spare rank takes a seat) from step [0-9]* in memory" \
    "$dir/out"
ok "to the same bits" test "$bits" = "$(state)"

begin 2 "--pp=2 --spares=1" --set checkpoint.every=5
in_mid_run kill_rank 9 $((RANDOM % 2))
mended "pp 2 and a spare one, one is killed" 2

begin 4 "--tp=2 --dp=2" --set checkpoint.every=5 --set parallel.zero=1 \
    --set train.timeout=12
in_mid_run kill_rank STOP 3
until_true eval 'grep -q "back at step" "$dir/out" || ! kill -0 $pid'
kill_rank CONT 3
mended "tp 2 dp 2, one is stopped" 3
ok "which learns it, in one line" test "$(grep -c "rank 3 did not answer, and \
the others have gone on without it; this rank ends$" "$dir/out")" = 1

# fail_gpu BYTES: in mid run, the GPU of rank 1 fails as it copies so many bytes
# to the host
fail_gpu() {
    echo "$1" >"$dir/new"
    in_mid_run mv "$dir/new" "$dir/fault.1"
    until_true eval '[ -z "$(living "$(cat "$dir/pid.1")")" ]'
    rm -f "$dir/calls.1" # whose GPU takes nothing back
}

# one_says WHAT: it is gone, and nobody else says why
one_says() {
    ok "which says so, and nobody else" test \
        "$(grep -c "^plait-train: $1.*an illegal address" "$dir/out")" = 1
    ok "nothing is left of it" eval '[ -z "$(living $(cat "$dir"/pid.*))" ]'
}

begin 3 --dp=3 --set checkpoint.every=5
fail_gpu 0
mended "dp 3, the GPU of one fails" 2
one_says

# Where all ranks learn of a failure before any is gone. A step copies less.
begin 3 --dp=3 --set checkpoint.every=0 --set train.check_replicas=2
fail_gpu 4096
mended "dp 3, the GPU of one fails as replicas are compared" 2
one_says "train.check_replicas: cannot copy from the device: "

begin 3 --dp=3 --set checkpoint.every=0 --set train.check_replicas=0
fail_gpu 4096
mended "dp 3, the GPU of one fails as the last checkpoint is saved" 2
one_says "checkpoint: cannot copy from the device: "

begin 3 --dp=3 --set checkpoint.every=5 --set train.check_replicas=0
fail_gpu 4096
mended "dp 3, the GPU of one fails as a checkpoint is saved" 2
one_says "checkpoint: cannot copy from the device: "

# GPUs of a node that read each other's memory: the contexts of those that
# outlive a rank are gone, and their processes begin anew.

anew=0
# anew: each process whose GPU has failed has begun anew, in its place
anew() {
    sed -n 's/.*; its process \([0-9]*\) begins anew$/\1/p' "$dir/out" >"$dir/new"
    cat "$dir"/pid.* >"$dir/pids"
    local times=$(wc -l <"$dir/new")
    anew=$((anew + times))
    test "$(grep -c "^# emulated GPU: an illegal address" "$dir/out")" = $times &&
        ! grep -vxFf "$dir/pids" "$dir/new"
}

# die RANK: it is killed while others wait for it, most often in a kernel
die() {
    kill_rank STOP "$1"
    sleep 0.3
    kill_rank 9 "$1"
}

# lost COUNT: so many processes are gone
lost() {
    [ "$(grep "is gone in step" "$dir/out" | grep -o "process [0-9]*" |
        sort -u | wc -l)" = "$1" ]
}

export per_node=4
begin 4 "--tp=2 --dp=2" --set checkpoint.every=5 --set parallel.zero=1
in_mid_run die $((RANDOM % 4))
mended "tp 2 dp 2 on one node, one is killed" 3
ok "one rank is lost, and the others begin anew" eval 'anew && lost 1'

begin 3 --dp=3 --set checkpoint.memory=4 --set checkpoint.every=1000
in_mid_run die 2
until_true eval 'grep -q "back at step" "$dir/out" || ! kill -0 $pid'
kill_rank 9 $((RANDOM % 2))
mended "dp 3 on one node, two are killed one after the other" 1
ok "and the others begin anew, from copies in memory" eval 'anew && test \
    "$(grep -c "dp [12] of 3.* from step [0-9]* in memory" "$dir/out")" = 2'

begin 4 "--tp=2 --dp=2" --set checkpoint.every=5
in_mid_run die 0
until_true eval 'grep -q "begins anew$" "$dir/out" || ! kill -0 $pid'
kill_rank 9 $((RANDOM % 3 + 1))
mended "tp 2 dp 2 on one node, a second one is killed as all begin anew" 2
ok "and the others begin anew" eval 'anew && lost 2'

begin 2 "--tp=2 --spares=1" --set checkpoint.memory=4 \
    --set checkpoint.every=1000
in_mid_run die $((RANDOM % 2))
mended "tp 2 and a spare one on one node, one is killed" 2
ok "whose seat the spare one takes, and the other begins anew" eval 'anew &&
    lost 1 && grep -q "(1 spare rank takes a seat) from" "$dir/out"'

# fall_off GPU RANK: the rank dies, and that GPU is not found again
export EMULATED_OFF=$dir/off
fall_off() {
    echo "$1" >"$dir/off"
    die "$2"
}
EMULATED_GPUS=3 begin 3 --dp=3 --set checkpoint.every=5
in_mid_run fall_off 0 0
mended "dp 3 on one node, one is killed, and its GPU is gone" 2
ok "and the others find theirs, whose numbers have changed" eval 'anew && lost 1'
rm "$dir/off"

# Rank 1 is lost only if a kernel of its reads what rank 0 has had.
for try in 1 2 3 4 5; do
    begin 3 --dp=3 --set checkpoint.every=5
    in_mid_run fall_off 1 0
    until_true eval '[ -z "$(living "$(cat "$dir/pid.1")")" ]'
    ! grep -q "^# emulated GPU: an illegal address" "$dir/out" || break
    finish
    rm "$dir/off"
done
rm -f "$dir/calls.1"
mended "dp 3 on one node, one is killed, and the GPU of another is gone" 1
ok "which does not take one that has its number" grep -q "its GPU, and this \
rank ends: GPU 0000:08:00.0 is gone, and GPU 0000:09:00.0 has its number (1)$" \
    "$dir/out"
ok "two ranks are lost" lost 2
rm "$dir/off"
unset EMULATED_OFF

# The same fault on all ranks, each time that replicas are compared.
begin 3 --dp=3 --set checkpoint.every=5 --set train.check_replicas=2
in_mid_run eval 'for r in 0 1 2; do echo 4096 >"$dir/fault.$r"; done'
finish
ok "dp 3 on one node, the GPUs of all fail in one step: the run ends" eval \
    'test $status -gt 0 -a $status -lt 124'
ok "nobody begins anew twice" eval '! sed -n "s/.*process \([0-9]*\) begins \
anew$/\1/p" "$dir/out" | sort | uniq -d | grep .'
ok "and the steps are repeated once at most" eval \
    'test "$(grep -c "is gone in step" "$dir/out")" -le 1'

EMULATED_GPUS=8 per_node=8 begin 8 "--tp=2 --pp=2 --dp=2" --set checkpoint.every=5
in_mid_run die $((RANDOM % 8))
mended "tp 2 pp 2 dp 2 on one node, one is killed" 7
ok "one rank is lost, and the others begin anew" eval 'anew && lost 1'

# lose_gpu COMMAND...: and the GPU of rank 0 cannot be opened again
lose_gpu() {
    : >"$dir/fault.0"
    "$@"
}
begin 3 --dp=3 --set checkpoint.every=5
in_mid_run lose_gpu die 1
until_true eval '[ -z "$(living "$(cat "$dir/pid.0")")" ]'
rm -f "$dir/calls.0"
mended "dp 3 on one node, one is killed, and a GPU of another does not return" 1
ok "which says so" grep -q \
    "^plait-train: a process that has begun anew cannot use its GPU" "$dir/out"
ok "two ranks are lost" lost 2

# forbid: nobody may start the program any more
forbid() {
    chmod -x "$dir/plait-train"
    : >"$dir/fault.0"
    "$@"
}
cp "$emulated/plait-train" "$dir/plait-train"
program=$dir/plait-train per_node=2 EMULATED_GPUS=6 begin 6 --dp=6 \
    --set checkpoint.every=5
in_mid_run forbid die 1
until_true eval '[ -z "$(living "$(cat "$dir/pid.0")")" ]'
rm -f "$dir/calls.0"
mended "dp 6 on three nodes, one is killed, and its neighbour cannot be started" 4
ok "which says why" test "$(grep -c "^plait-train: its process cannot begin \
anew: /proc/self/exe: Permission denied; this rank ends$" "$dir/out")" = 1
ok "two ranks are lost" lost 2

export EMULATED_GPUS=6 per_node=2
begin 6 --dp=6 --set checkpoint.every=5
in_mid_run die 1
mended "dp 6 on three nodes, one is killed" 5
ok "one rank is lost, and its neighbour begins anew" eval 'anew && lost 1'
ok "processes have begun anew" test $anew -gt 0
unset per_node

PLAIT_SHARE_GPUS=1 begin 2 --dp=2
finish
ok "ranks that share a GPU are refused" eval 'test $status != 0 &&
    test "$(grep -c "elastic: ranks that share a GPU" "$dir/out")" = 1'
echo "1..$n"
