#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How trainings end that do not end well: which signal has killed a rank, that
# the loss has risen for good or is no number, and from which checkpoint the run
# goes on: what is advised is pasted.
set -u
. "$top_srcdir/tests/lib/tiny_run.sh"
small+=(--set lr.schedule=constant)

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
