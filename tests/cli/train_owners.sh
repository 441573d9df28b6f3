#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Optimizers that give each matrix an owner, with more data-parallel ranks than
# a stage has matrices, or one without any: a checkpoint is resumed, in the same
# layout and in another one; --init takes its weights; and an elastic run goes on
# from copies in memory. Over sockets, and once over MPI.
set -u
. "$top_srcdir/tests/lib/train.sh"
plait=$top_builddir/plait

# planned RANKS FLAGS ARGS...: train over sockets
planned() {
    timeout -k 9 60 "$plait" run --np "$1" $2 --pin=none -- "$train" \
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

# A layer has four matrices. With pp 2 and one layer, a stage has none.
for optim in soap muon; do
    name="--set optim.name=$optim"
    for zero in 0 1 2 3; do
        ok "$optim, zero $zero, 7 ranks of one layer" goes_on 7 --dp=7 $name \
            --set model.layers=1 --set train.global_batch=14 \
            --set parallel.zero=$zero
    done
    ok "$optim, tp 2 x dp 4" goes_on 8 "--tp=2 --dp=4" $name \
        --set model.layers=1 --set train.global_batch=8
    ok "$optim, cp 2 x dp 4" goes_on 8 "--cp=2 --dp=4" $name \
        --set model.layers=1 --set train.global_batch=8
    ok "$optim, ep 2 x dp 6" goes_on 6 "--ep=2 --dp=6" $name \
        --set model.layers=1 --set model.experts=4 --set train.global_batch=12
    ok "$optim, pp 2 x dp 4, a stage without a layer" goes_on 8 \
        "--pp=2 --dp=4" $name --set model.layers=1 \
        --set parallel.stages='[1, 0]' --set train.global_batch=8
done

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
timeout -k 9 100 "$plait" run --elastic --np 8 --dp=8 --pin=none -- sh -c \
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
