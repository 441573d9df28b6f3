#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# srun plait run --elastic over nodes with networks and processes of their own.
# All tasks of a node are killed, one is stopped, or a node's link goes down for
# ever or its processes are frozen; the other ranks go on in the same processes,
# perhaps with those of a spare node, to the losses of an undisturbed run.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
. "$top_srcdir/tests/cluster/own_networks.sh"
. "$top_srcdir/tests/cluster/ranks_of.sh"
train=$(readlink -f "$top_builddir/plait-train")
plait_run=$(readlink -f "$top_builddir/plait")
# Without the plugin, which this test does not need: with sanitizers it cannot
# be loaded into a Slurm that has none.
. "$top_srcdir/tests/cluster/tap.sh" --netns yes --gpus 0 --plugin '' \
    --conf KillOnBadExit=1
. "$top_srcdir/tests/cluster/freeze.sh"
groups_of node3 && frozen=yes || frozen=

python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2 || exit 99
export OMP_NUM_THREADS=1
steps=80
"$train" c.yaml --device cpu --set train.steps=$steps --metrics one.jsonl \
    >one.out 2>&1 || { cat one.out; echo "Bail out! plait-train fails"; exit 99; }

# start NAME LAYOUT ARGS...: train in the background, two tasks on each of three
# nodes
start()
{
    timeout 480 srun -Q --mpi=none --kill-on-bad-exit=0 --no-kill -N3 \
        -w 'node[1-3]' --ntasks-per-node=2 --output="$1.out.%t" \
        "$plait_run" run --elastic --pin=none $2 -- "$train" c.yaml \
        --device cpu --set train.steps=$steps \
        --set checkpoint.dir="$work/$1.ck" --set checkpoint.every=5 \
        --set log.metrics="$1.jsonl" "${@:3}" >"$1.srun" 2>&1 </dev/null &
    pid=$!
}

says()
{
    grep -hE "$2" "$1".out.*
}

# went_on NAME PATTERN: whether the others report a loss and going on with
# PATTERN, and then all steps
went_on()
{
    until_true at_step "$1" $steps
    says "$1" "^plait-train: .* is gone in step [0-9]+; going on with $2" ||
        { cat "$1".out.* "$1.srun"; return 1; }
    python3 -B "$top_srcdir/tests/lib/same_losses.py" one.jsonl "$1.jsonl" \
        $steps
}

# While others wait until the limit of one that is stopped has passed, the tasks
# of a node of another run are killed.
start stopped "--tp=2 --dp=3" --set train.timeout=8
until_true at_step stopped 12
kill -STOP "$(ranks stopped node3 | head -1)"
stopped=$pid

start killed "--tp=2 --dp=3"
until_true at_step killed 12
kill -9 $(ranks killed node2)
check "all tasks of a node are killed: the step ends" ended
check "... the others go on, to the losses of a run that nobody hurt" \
    went_on killed "dp 2 of 3"
check "... as the same processes, without an error of theirs" is "" \
    "$(says killed "plait-train: |Sanitizer|runtime error" |
        grep -vE "^plait-train: (rank|back at step) ")"
says killed "is gone in step|back at step" | sed 's/^/#   /'

pid=$stopped
check "a rank is stopped where only another node sees it: the others go on" \
    went_on stopped "dp 2 of 3"
kill -CONT $(ranks stopped node3)
check "... and it learns that it was left out, and the step ends" ended
check "... with one line of it" is 1 "$(says stopped \
    "^plait-train: rank [0-9] did not answer, and the others have gone on" |
    wc -l)"
says stopped "has not ended for|is gone in step|back at step" | sed 's/^/#   /'

start spares "--tp=2 --dp=2 --spares=1" --set checkpoint.memory=5
until_true at_step spares 12
check "with a spare node there are so many ranks less" is "2 PLAIT_SPARES=2 \
2 PLAIT_WORLD_SIZE=4" "$(for one in $(ranks spares node3); do
    tr '\0' '\n' <"/proc/$one/environ" | grep -E '^PLAIT_(WORLD_SIZE|SPARES)='
    done | sort | uniq -c | xargs)"
kill -9 $(ranks spares node2)
check "all tasks of a node are killed: the step ends" ended
check "... tasks of the spare node take its seats" went_on spares \
    "dp 2 of 2 \(2 spare ranks take seats\)"
check "... without an error of theirs" is "" \
    "$(says spares "plait-train: |Sanitizer|runtime error" |
        grep -vE "^plait-train: (rank|back at step) ")"
says spares "is gone in step|back at step" | sed 's/^/#   /'

# KillOnBadExit ends all tasks when one fails: task 0 must still print its line.
check "more spare nodes than there are are refused, in one line" refused \
    "spares=2 leaves none of 2 nodes; ask for 3 or more" srun -Q --mpi=none \
    -N2 --ntasks-per-node=1 bash -c '[ $SLURM_PROCID != 0 ] || sleep 2
        exec "$0" run --elastic --spares=2 true' "$plait_run"

start cut "--dp=3 --tp=2" --set train.timeout=12
until_true at_step cut 12
ip link set veth3 down
check "the link of a node is down for ever: the others go on" \
    went_on cut "dp 2 of 3"
check "... and what is cut off ends by itself" until_true eval \
    '[ -z "$(ranks cut node3)" ]'
ip link set veth3 up
check "the step ends" ended
check "... each rank that was cut off has said why, and the metrics are the \
others'" eval '[ "$(says cut "^plait-train: rank [0-9]: [0-9] other ranks are alive \
and do not answer" | wc -l)" = 2 ] && went_on cut "dp 2 of 3"'
says cut "has not ended for|is gone in step|back at step" | sed 's/^/#   /'

if ! all_tier; then
    : # seen by the others as a node whose link is down
elif [ -n "$frozen" ]; then
    start frozen "--dp=3 --tp=2" --set train.timeout=8
    until_true at_step frozen 12
    freeze node3
    check "all processes of a node are frozen: the others go on" \
        went_on frozen "dp 2 of 3"
    check "... and name the node" like "$(says frozen "has not ended for")" \
        "rank [0-9] \(node3, process [0-9]+\)"
    thaw node3
    check "... which is thawed: the step ends, and nothing of it is left" eval \
        'ended && [ -z "$(ranks frozen)" ]'
    says frozen "has not ended for|is gone in step|back at step" |
        sed 's/^/#   /'
else
    skip "all processes of a node are frozen" "cgroups are not permitted here"
fi
done_testing
