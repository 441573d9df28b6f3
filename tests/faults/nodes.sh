#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trainings over three nodes with networks and processes of their own. At a
# random step one node is hurt: its link goes down or its cgroup is frozen, for
# ever or for 5 s. Runs with --elastic go on in place, others end and are
# started again. All must reach the state of an undisturbed run or, where a
# replica was lost, its losses.
# NODE_FAULTS=24: how many faults, SEED=5: which.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
. "$top_srcdir/tests/cluster/own_networks.sh"
train=$(readlink -f "$top_builddir/plait-train")
plait_run=$(readlink -f "$top_builddir/plait")
. "$top_srcdir/tests/cluster/tap.sh" --netns yes --gpus 0 --nodes 3 --plugin ''
. "$top_srcdir/tests/cluster/freeze.sh"

python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2 || exit 99
export OMP_NUM_THREADS=1
steps=80
limit=8
kinds=("link for ever" "link for 5 s")
groups_of node1 node2 node3 && kinds+=("frozen for ever" "frozen for 5 s") ||
    echo "# no node is frozen: cgroups are not permitted here"
layouts=("--tp=2 --dp=3" "--dp=6" "--pp=2 --dp=3" "--pp=3 --tp=2"
    "--elastic --tp=2 --dp=3" "--elastic --dp=6" "--elastic --pp=2 --dp=3"
    "--elastic --tp=2 --dp=2 --spares=1" "--elastic --pp=2 --dp=2 --spares=1")
RANDOM=${SEED:=$RANDOM}
echo "# SEED=$SEED repeats this run"

# start NAME LAYOUT TIMEOUT: train in the background, two ranks on each node
start()
{
    timeout 480 srun -Q --mpi=none --kill-on-bad-exit=0 -N3 \
        --ntasks-per-node=2 --output="$1.out.%t" "$plait_run" run \
        --pin=none $2 -- "$train" c.yaml --device cpu \
        --set train.steps=$steps --set train.deterministic=true \
        --set checkpoint.dir="$work/$1.ck" --set checkpoint.every=5 \
        --set log.metrics="$work/$1.jsonl" --set train.timeout="$3" \
        >"$1.srun" 2>&1 </dev/null &
    pid=$!
}

# gone NAME [NODE]: whether all processes of a run, except those on NODE, have
# ended
gone()
{
    local one
    for one in $(pgrep -f "^[^ ]*plait-train c.yaml .*dir=$work/$1.ck"); do
        [ -n "${2:-}" ] && grep -qx "$one" "$groups.$2/cgroup.procs" || return
    done
}

state()
{
    cat "$1".out.* | grep "^state after"
}

# same NAME REFERENCE: whether the states are equal or, if a replica was lost,
# the losses
same()
{
    python3 -B "$top_srcdir/tests/lib/same_losses.py" "$2.jsonl" "$1.jsonl" \
        $steps && { grep -qE "going on with dp [0-9]+ of [0-9]+ from" "$1".out.* ||
        is "$(state "$2")" "$(state "$1")"; }
}

all_idle()
{
    [ "$(sinfo -h -N -t idle -o '%N %T' | grep -cv '\*')" = 3 ] &&
        [ -z "$(squeue -h)" ]
}

# hurt link|frozen NODE; heal undoes it
hurt()
{
    [ "$1" = link ] && ip link set "veth${2#node}" down || freeze "$2"
}

heal()
{
    [ "$1" = link ] && ip link set "veth${2#node}" up || thaw "$2"
}

# goes_on NAME LAYOUT KIND NODE: an elastic run reaches its last step while NODE
# is hurt; another one ends on the other nodes
goes_on()
{
    local spared=
    [ "${3%% *}" = link ] || spared=$4
    if [[ $2 == *elastic* ]]; then
        until_true at_step "$1" $steps
    else
        within $((limit + 5)) gone "$1" "$spared"
    fi
}

# one NAME LAYOUT KIND NODE STEP REFERENCE: inject one fault and check the
# result
one()
{
    local bound=$limit bad=
    [[ $3 == *ever ]] || bound=60
    start "$1" "$2" $bound
    until_true at_step "$1" "$5" || return
    kill -0 $pid || { cat "$1".out.* "$1.srun"; return 1; }
    hurt "${3%% *}" "$4"
    if [[ $3 == *ever ]]; then
        goes_on "$1" "$2" "$3" "$4" || { echo "hangs while it is hurt"; bad=1; }
    else
        sleep 5
    fi
    heal "${3%% *}" "$4"
    ended && until_true gone "$1" && until_true all_idle || return
    if [[ $3 == *ever && $2 != *elastic* ]]; then
        grep -qE "has not ended for.* \($4, process" "$1".out.* ||
            { echo "$4 is not named"; cat "$1".out.*; bad=1; }
        start "$1" "$2" 60
        ended && until_true all_idle || return
    fi
    [ -z "$bad" ] && same "$1" "$6" || { tail -n 20 "$1".out.*; return 1; }
}

for n in $(seq "${NODE_FAULTS:-24}"); do
    kind=${kinds[n % ${#kinds[@]}]} layout=${layouts[RANDOM % ${#layouts[@]}]}
    node=node$((RANDOM % 3 + 1)) step=$((RANDOM % 35 + 5))
    reference=whole$(tr -dc a-z0-9 <<<"${layout#--elastic }")
    [ -f "$reference.jsonl" ] || { start "$reference" "$layout" 60; ended; }
    began=$SECONDS
    check "$kind, $node at step $step, $layout" one "run$n" "$layout" "$kind" \
        $node $step "$reference"
    echo "#   $((SECONDS - began)) s"
    rm -rf "run$n".*
done
done_testing
