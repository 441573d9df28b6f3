#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A training over four nodes with networks of their own; one node's link goes
# down for ever. One line names the node that the others wait for, all ranks,
# also those on the isolated node, are gone 5 s after train.timeout, and the
# node takes jobs again once its link is back. The same for a rank that stops,
# alone on its node.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
. "$top_srcdir/tests/cluster/own_networks.sh"
train=$(readlink -f "$top_builddir/plait-train")
comms=socket
. "$top_srcdir/tests/cluster/tap.sh" --netns yes --gpus 0 || exit 99
# With MPI the first training is; its abort kills ranks that are stopped, too.
# Sockets may tell of a lost link before train.timeout does.
first=socket
! grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h" || first=mpi
! all_tier || [ $first = socket ] || comms="mpi socket"
srun --mpi=list 2>&1 | grep -q pmix ||
    { echo "1..0 # SKIP this Slurm has no PMIx"; exit 0; }

python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2 || exit 99

# UCX would look for networks of other namespaces, which it cannot reach.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self
limit=8
# start NAME NODES ARGS...: four ranks, each of which writes its node's name to a
# file
start()
{
    timeout 480 srun -Q --mpi=pmix -N"$2" -n4 --dp=4 --output="$1.out.%t" \
        bash -c 'hostname >"$0.host.$RANK"; exec "$@"' "$1" \
        "$train" c.yaml --set train.steps=100000000 \
        --set train.timeout=$limit --set log.metrics="$work/$1.jsonl" \
        "${@:3}" >"$1.srun" 2>&1 </dev/null &
    srun_pid=$!
}

trains()
{
    [ "$(wc -l <"$1.jsonl")" -gt 8 ]
}

# started NAME: wait until it trains; if it does not, print its and srun's
# output
started()
{
    until_true eval "trains $1 || ! kill -0 $srun_pid" && trains "$1" && return
    cat "$1.srun" "$1".out.?
    return 1
}

# ranks NAME: PIDs of the run's processes in this PID namespace
ranks()
{
    pgrep -f "^[^ ]*plait-train c.yaml .*log.metrics=$work/$1.jsonl"
}

gone()
{
    [ -z "$(ranks "$1")" ]
}

# said NAME PATTERN: whether exactly one line names the cause, apart from that
# of an isolated node
said()
{
    is 1 "$(cat "$1".out.? | grep "has not ended for" | grep -vc "it is cut off")" &&
        like "$(cat "$1".out.?)" \
            "plait-train: step [0-9]+ has not ended for $limit s \
\(train.timeout\): $2" || { cat "$1".out.?; return 1; }
}

# rank_on NAME NODE: the rank that runs on NODE
rank_on()
{
    grep -lx "$2" "$1".host.? | sed 's/.*\.//'
}

all_idle()
{
    [ "$(sinfo -h -N -t idle -o '%N %T' | grep -cv '\*')" = 4 ] &&
        [ -z "$(squeue -h)" ]
}

start cut 4 --comm $first
check "a training over four nodes" started cut
ip link set veth3 down
# within() counts rounds, which take longer on a busy machine.
check "a link is down for ever: all are gone 5 s after train.timeout" \
    within $((limit + 5)) gone cut
check "... the node is named" said cut \
    "rank $(rank_on cut node3) \(node3, process [0-9]+\) has not been heard \
of since [0-9:]+: its node is down, stopped or cut off"
ip link set veth3 up
wait $srun_pid
check "once the link is back, its node is idle" until_true all_idle

# As after a link came up, when addresses are not resolved yet: between two
# nodes no connection can be made for some seconds. That is no loss.
on_node3()
{
    nsenter -n -t "$(cat slurm/slurmd.node3.pid)" ip route "$@"
}
address=$(sed -n 's/ node4$//p' slurm/hosts)
on_node3 add unreachable "$address/32"
start apart 4 --comm socket
until_true eval '[ "$(ranks apart | wc -l)" = 4 ]'
sleep 7
check "two nodes cannot reach each other at first: all ranks wait" \
    is "4 0" "$(ranks apart | wc -l) $(cat apart.jsonl 2>&1 | grep -c step)"
on_node3 delete unreachable "$address/32"
check "... and train" started apart
kill -9 $(ranks apart)
wait $srun_pid

# Three ranks on one node, and one on another, which is stopped. With MPI, its
# abort kills that rank; without, Slurm sends SIGCONT and the rank must end by
# itself.
for comm in $comms; do
    printf 'node1\nnode1\nnode1\nnode2\n' >hosts
    [ $comm = mpi ] && mpi=pmix || mpi=none
    SLURM_HOSTFILE=$work/hosts timeout 480 srun -Q --mpi=$mpi -n4 \
        -m arbitrary --dp=4 --output="$comm.out.%t" "$train" c.yaml \
        --comm $comm --set train.steps=100000000 --set train.timeout=$limit \
        --set log.metrics="$work/$comm.jsonl" >"$comm.srun" 2>&1 </dev/null &
    srun_pid=$!
    check "a training over two nodes, $comm" started $comm
    for pid in $(ranks $comm); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx PLAIT_RANK=3 &&
            kill -STOP "$pid"
    done
    check "the rank that is alone on its node stops: all are gone" \
        within $((limit + 5)) gone $comm
    check "... it is named, in one line" said $comm \
        "rank 3 \(node2, process [0-9]+\) has not been heard of since [0-9:]+"
    wait $srun_pid
done
done_testing
