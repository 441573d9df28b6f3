#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Optimizers that give each matrix an owner, with more data-parallel ranks than
# a stage has matrices, or one without any: a checkpoint is resumed, in the same
# layout and in another one; --init takes its weights; and an elastic run goes on
# from copies in memory. Over sockets, and once over MPI.
set -u
. "$top_srcdir/tests/lib/train.sh"
. "$top_srcdir/tests/lib/tier.sh"
plait=$top_builddir/plait

# planned RANKS FLAGS ARGS...: train over sockets
planned() {
    timeout -k 9 240 "$plait" run --np "$1" $2 --pin=none -- "$train" \
        "$dir/c.yaml" --device cpu "${@:3}" >"$dir/out" 2>&1 </dev/null
    status=$?
}

# goes_on RANKS FLAGS ARGS...: two steps, and a third one by another run
goes_on() {
    local ck=$dir/ck
    rm -rf "$ck"
    planned "$@" --set train.steps=2 --set checkpoint.dir="$ck"
    [ "$status" = 0 ] || return 1
    planned "$@" --set train.steps=3 --set checkpoint.dir="$ck" \
        --resume-anyway train.steps
    [ "$status" = 0 ] && grep -q "resumed after step 2" "$dir/out"
}

# zeros OPTIMIZER STAGE...: a layer has four matrices
zeros() {
    local zero
    for zero in "${@:2}"; do
        ok "$1, zero $zero, 7 ranks of one layer" goes_on 7 --dp=7 \
            --set optim.name=$1 --set model.layers=1 \
            --set train.global_batch=14 --set parallel.zero=$zero
    done
}

# layout OPTIMIZER AXES...: with pp 2 and one layer, a stage has no matrix
layout() {
    local axes ranks batch more
    for axes in "${@:2}"; do
        ranks=8 batch=8 more=
        [ "$axes" != "--ep=2 --dp=6" ] ||
            ranks=6 batch=12 more="--set model.experts=4"
        [ "$axes" != "--pp=2 --dp=4" ] || more="--set parallel.stages=[1,0]"
        ok "$1, $axes" goes_on $ranks "$axes" --set optim.name=$1 \
            --set model.layers=1 --set train.global_batch=$batch $more
    done
}

# In the quick tier each stage of ZeRO and each axis once: the two optimizers
# have their owners from the same code.
zeros soap 1 3
layout soap "--tp=2 --dp=4" "--pp=2 --dp=4"
zeros muon 0 2
layout muon "--cp=2 --dp=4" "--ep=2 --dp=6"
if all_tier; then
    zeros soap 0 2
    layout soap "--cp=2 --dp=4" "--ep=2 --dp=6"
    zeros muon 1 3
    layout muon "--tp=2 --dp=4" "--pp=2 --dp=4"
fi

small="--set optim.name=soap --set model.layers=1 --set train.steps=3"
small+=" --set train.global_batch=12"
rm -rf "$dir/ck"
planned 6 --dp=6 $small --set checkpoint.dir="$dir/ck"
planned 6 --dp=6 $small --init "$dir/ck"
ok "--init, 6 ranks" test "$status" = 0
planned 6 --dp=6 --set optim.name=soap --set model.layers=1 \
    --set train.global_batch=12 --set train.steps=4 \
    --resume-anyway train.steps \
    --set checkpoint.dir="$dir/ck" --metrics "$dir/wide"
cp -r "$dir/ck" "$dir/ck2"
rm -rf "$dir/ck/step-00000004"
ln -sfn step-00000003 "$dir/ck/latest"
planned 2 --dp=2 --set optim.name=soap --set model.layers=1 \
    --set train.global_batch=12 --set train.steps=4 \
    --resume-anyway train.steps \
    --set checkpoint.dir="$dir/ck" --metrics "$dir/narrow"
ok "the same loss with 2 ranks" python3 -c '
import json, sys
a, b = (json.loads(open(f).readlines()[-1])["loss"] for f in sys.argv[1:])
sys.exit(not abs(a - b) <= 2e-5 * a)' "$dir/wide" "$dir/narrow"

rm -rf "$dir/ck"
sets="--set optim.name=soap --set model.layers=1 --set train.global_batch=14"
run 7 $sets --set train.steps=2 --set checkpoint.dir="$dir/ck"
run 7 $sets --set train.steps=3 --set checkpoint.dir="$dir/ck" \
    --resume-anyway train.steps
ok "7 ranks over MPI" eval \
    'test $status = 0 && grep -q "resumed after step 2" "$dir/out"'

# One of eight ranks is killed; seven go on from copies in memory.
rm -f "$dir"/pid.*
: >"$dir/out"
timeout -k 9 240 "$plait" run --elastic --np 8 --dp=8 --pin=none -- sh -c \
    'echo $$ >"$0/pid.$PLAIT_RANK"; exec "$1" "$0/c.yaml" --device cpu \
    --set optim.name=soap --set model.layers=1 --set train.global_batch=56 \
    --set train.micro_batch=1 --set train.steps=3000 \
    --metrics "$0/m.jsonl" --set checkpoint.memory=2 \
    --set checkpoint.dir="$0/last"' "$dir" "$train" >"$dir/out" 2>&1 </dev/null &
pid=$!
shows() { # TEXT: or the run has ended
    local text=$1
    until_true eval 'grep -q "$text" "$dir/out" || ! kill -0 "$pid"' &&
        grep -q "$text" "$dir/out"
}
until_true at_step "$dir/m" 10
kill -9 "$(cat "$dir/pid.5")"
ok "elastic: 7 ranks go on" shows "going on with dp 7 of 8"
ok "from memory" grep -q "in memory" "$dir/out"
kill -9 $(cat "$dir"/pid.*) 2>/dev/null
kill "$pid" 2>/dev/null
wait "$pid"
pid=
echo "1..$n"
