#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait run --elastic on emulated GPUs over NCCL: during training ranks are
# killed or stopped, or a GPU fails, and the other ranks go on in the same
# processes to the losses of an undisturbed run.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
unset PLAIT_NCCL_WINDOWS # as a user has it
. "$top_srcdir/tests/lib/until.sh"
plait=$top_builddir/plait
export OMP_NUM_THREADS=1 EMULATED_GPUS=4
unset CUDA_VISIBLE_DEVICES per_node
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
            exec "$@" >>"$0/out" 2>&1' "$dir" "$emulated/plait-train" \
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
# made its last step by graphs.
all_clean() {
    ! grep "^left-.* [^0]" "$dir"/calls.* &&
        ! grep -L "^cudaGraphLaunch" "$dir"/calls.[0-9]* | grep .
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

# GPUs of a node that read each other's memory: the loss of a rank takes the
# others of its node along, and those of other nodes go on.
export EMULATED_GPUS=6 per_node=2
begin 6 --dp=6 --set checkpoint.every=5
in_mid_run kill_rank 9 1
until_true eval '[ -z "$(living "$(cat "$dir/pid.0")")" ]'
rm -f "$dir/calls.0"
mended "dp 6 on three nodes, one is killed" 3
# By what was under way when the memory went: its GPU's state, or the call.
ok "whose neighbour ends too, and says why" test "$(grep -c -e \
    "^plait-train: GPU .* has failed: CUDA refuses all calls.*this rank ends$" \
    -e "^plait-train: .*: an illegal address: the memory of rank 1, which" \
    "$dir/out")" = 1
unset per_node

PLAIT_SHARE_GPUS=1 begin 2 --dp=2
finish
ok "ranks that share a GPU are refused" eval 'test $status != 0 &&
    test "$(grep -c "elastic: ranks that share a GPU" "$dir/out")" = 1'
echo "1..$n"
