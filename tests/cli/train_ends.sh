#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How trainings end that do not end well: which signal has killed a rank, that
# the loss has risen for good or is no number, and from which checkpoint the run
# goes on: what is advised is pasted.
set -u
train=$top_builddir/plait-train
plait=$top_builddir/plait
export OMP_NUM_THREADS=1
dir=$(mktemp -d) || exit 1
pid=
trap '[ -n "$pid" ] && kill -9 $pid 2>/dev/null; rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
. "$top_srcdir/tests/lib/until.sh"
shown=$dir/out
cd "$dir" || exit 1
case $top_builddir in /*) ;; *) echo "Bail out! top_builddir"; exit 99 ;; esac
seq 3000 >text

# run ARGS...: train; its output in $dir/out, its status in $status
run() {
    timeout 240 "$train" gpt.yaml --device cpu "$@" >out 2>&1 </dev/null
    status=$?
}
says() { grep -Eq -e "$1" out; }
said_not() { ! says "$1"; }

ok "plait prep" "$plait" prep text --out tokens
ok "plait init" "$plait" init --model tiny --gpus 1 --gpu-type cpu --out gpt.yaml
small=(--set train.steps=4 --set model.layers=1 --set model.hidden=64
    --set model.seq_len=32 --set train.global_batch=4 --set train.micro_batch=2
    --set lr.warmup=0 --set lr.schedule=constant)

long=("${small[@]}" --set train.steps=100000 --set checkpoint.every=20
    --set checkpoint.dir=busy --metrics busy.jsonl)
begin() {
    rm -rf busy busy.jsonl*
    "$@" >long.out 2>&1 </dev/null &
    pid=$!
    within 60 test -s busy.jsonl
}

# kept OPTION...: a run of two ranks, of which rank 1 is killed
kept() {
    begin "$plait" run --np 2 --dp=2 --pin=none -- sh -c \
        'echo $$ >"pid.$PLAIT_RANK"; exec "$@"' sh "$train" gpt.yaml \
        "${long[@]}" --device cpu "$@"
    within 60 test -e busy/latest
    kill -9 "$(cat pid.1)"
    wait $pid
    status=$?
    pid=
    mv long.out out
}
for comm in socket auto; do
    kept --comm $comm
    ok "a run that loses a rank fails ($comm)" test $status != 0
    ok "names the signal, once" test 1 = \
        "$(grep -c 'rank 1 was killed by signal 9 (Killed)' out)"
    ok "and from where it goes on, once" test 1 = \
        "$(grep -c 'the newest checkpoint is busy/step-[0-9]*; the same' out)"
done
step=$(sed -n 's/.*checkpoint is busy.step-0*\([0-9]*\);.*/\1/p' out)
run "${long[@]}" --set train.steps=$((step + 1))
ok "it does" says "^resumed after step $step$"

run "${small[@]}" --set checkpoint.dir=d1
run "${small[@]}" --set checkpoint.dir=d1 --set train.steps=60 \
    --set optim.lr=50 --resume-anyway optim.lr
ok "a run that diverges says so, once" test 1 = \
    "$(grep -c 'the loss has risen from .* the training diverges' out)"
ok "with what goes on from before" says "resume d1/step-00000004 "
again=$(sed -n 's/.*goes on from before: //p' out)
run "${small[@]}" --set checkpoint.dir=d1 --set train.steps=5 $again
ok "which it does" says "^resumed after step 4$"
run "${small[@]}" --set checkpoint.dir=d1 --set train.steps=30 $again \
    --set optim.lr=1e-4
ok "and with a good rate nothing diverges" said_not "diverges"
run "${small[@]}" --set checkpoint.dir=null --set train.steps=60 \
    --set optim.lr=50
ok "without checkpoints it says to begin again" \
    says "diverges; begin again with a smaller optim.lr$"
run "${small[@]}" --set checkpoint.dir=d1 --set train.steps=60 \
    --resume d1/latest --set optim.lr=1e6 --set optim.clip=0 \
    --resume-anyway optim.lr,optim.clip
ok "a loss that is no number ends the run" test $status = 1
ok "with one line, that says from where it goes on" test 1 = "$(grep -c \
    'the run stops; .*newest checkpoint is d1/step-.*; --resume auto' out)"
echo "1..$n"
