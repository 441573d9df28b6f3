#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two runs on different nodes and one folder of checkpoints: the second one is
# refused while the first trains, also after that has lost a node and goes on
# without it or with a spare one, and is let in when the first has been killed.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
. "$top_srcdir/tests/cluster/own_networks.sh"
. "$top_srcdir/tests/cluster/ranks_of.sh"
train=$(readlink -f "$top_builddir/plait-train")
plait_run=$(readlink -f "$top_builddir/plait")
. "$top_srcdir/tests/cluster/tap.sh" --netns yes --gpus 0 --plugin '' \
    --conf KillOnBadExit=1
python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2 || exit 99
export OMP_NUM_THREADS=1

# train_on NODES TASKS DIR ARGS...: until it is told to stop
train_on()
{
    timeout 240 srun -Q --mpi=none --kill-on-bad-exit=0 --no-kill -w "$1" \
        --ntasks-per-node="$2" "${@:4}" "$train" c.yaml --device cpu \
        --set train.steps=1000000 --set checkpoint.dir="$work/$3.ck" \
        --set checkpoint.every=20 --set log.metrics="$3.jsonl" \
        >"$3.out" 2>&1 </dev/null &
    pid=$!
    until_true at_step "$3" 25
}

# second DIR: a run on the node that is left; its status, with a word of why
second()
{
    timeout 240 srun -Q --mpi=none -N1 -n1 -w node4 "$train" c.yaml \
        --device cpu --set train.steps=1 --set checkpoint.dir="$work/$1.ck" \
        >second.out 2>&1 </dev/null
    echo $? $(grep -oE 'another run trains there: process|has ended without' \
        second.out | sort -u)
}
refused='1 another run trains there: process'

stop()
{
    kill -TERM $(ranks "$1")
    ended
}

train_on node1 1 killed -N1
check "a run on another node is refused" is "$refused" "$(second killed)"
kill -9 $(ranks killed)
check "all tasks are killed: the step ends" ended
check "... and the next run takes the place, and says so" \
    is '0 has ended without' "$(second killed)"
check "... which leaves none" is 0 "$(second killed)"

train_on 'node[1-3]' 2 lost -N3 "$plait_run" run --elastic --pin=none \
    --tp=2 --dp=3 --
kill -9 $(ranks lost node1)
until_true grep -q 'back at step' lost.out
check "a run that goes on without its first node keeps its folder" \
    is "$refused" "$(second lost)"
check "... and was not refused by itself" is '' \
    "$(grep -E 'another run trains|ended without a word' lost.out)"
check "... until it ends" stop lost
check "... and then leaves it to the next" is 0 "$(second lost)"

train_on 'node[1-3]' 2 spare -N3 "$plait_run" run --elastic --pin=none \
    --tp=2 --dp=2 --spares=1 --
kill -9 $(ranks spare node1)
until_true grep -q 'back at step' spare.out
check "so does one that goes on with a spare node" \
    is "$refused" "$(second spare)"
check "... and was not refused by itself" is '' \
    "$(grep -E 'another run trains|ended without a word' spare.out)"
# Stopped first: those that are killed last would see the others go, and end the
# run with a word.
all=$(ranks spare)
kill -STOP $all
kill -9 $all
check "all of it is killed: the step ends" ended
check "... and the next run takes the place, and says so" \
    is '0 has ended without' "$(second spare)"
done_testing
