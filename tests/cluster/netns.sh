#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every node in network, host name, process and mount namespaces of its own, on
# a private bridge: the contract with real addresses, a link that goes down and
# a node that crashes.
. "$top_srcdir/tests/cluster/own_networks.sh"
. "$top_srcdir/tests/cluster/tap.sh" --netns yes --conf SlurmdTimeout=5

planned=(srun -Q -N4 --ntasks-per-node=2 --gpus-per-node=2 --tp=2 --pp=2)

"${planned[@]}" bash -c 'echo $RANK $(hostname) $SLURMD_NODENAME \
    $MASTER_ADDR $(ls /dev/shm | wc -l)' >seen
check "each node has its own name" is "" "$(awk '$2 != $3' seen)"
check "MASTER_ADDR is RANK 0's address" is "10.99.0.2 1" \
    "$(awk '{ print $4 }' seen | sort | uniq -c | awk '{ print $2, NR }')"

# RANK 0 listens on the port that it was given; the other ranks connect to it
# from their nodes.
cat >meet <<'END2'
#!/usr/bin/python3
import os, socket, time
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", port))
    peers = [server.accept()[1][0] for _ in range(7)]
    print(*sorted(set(peers)))
else:
    for _ in range(100):
        try:
            socket.create_connection((os.environ["MASTER_ADDR"], port), 5)
            break
        except OSError:
            time.sleep(0.1)
END2
chmod 755 meet
if command -v python3 >/dev/null; then
    check "the ranks meet at MASTER_ADDR:MASTER_PORT" is \
        "10.99.0.2 10.99.0.3 10.99.0.4 10.99.0.5" \
        "$(timeout 240 "${planned[@]}" ./meet 2>&1)"
else
    skip "the ranks meet at MASTER_ADDR:MASTER_PORT" "no python3"
fi

# all_idle: Slurm sees four nodes that answer
all_idle()
{
    [ "$(sinfo -h -N -t idle -o '%N %T' | grep -cv '\*')" = 4 ]
}

start_step()
{
    rm -f pid.*
    "$@" bash -c 'echo $$ >pid.$SLURM_PROCID; exec sleep 600' >step.out 2>&1 &
    until_true eval '[ $(cat pid.* | wc -w) = 8 ]' || echo "no start"
}

# node3's link goes down: Slurm ends the step, and the next one is planned over
# the remaining nodes.
start_step "${planned[@]}"
ip link set veth3 down
check "a link down ends the step" until_true eval '! kill -0 $!'
three=$(timeout 240 srun -Q -N3 --ntasks-per-node=2 --tp=2 --pp=3 bash -c \
    'echo $RANK $SLURMD_NODENAME' 2>&1 | sort | xargs)
check "the next is planned over the other three" is \
    "0 node1 1 node1 2 node2 3 node2 4 node4 5 node4" "$three"
ip link set veth3 up
check "the link is up: four nodes again" until_true all_idle
check "... and a plan over them" is "0 1 2 3 4 5 6 7" \
    "$(timeout 240 "${planned[@]}" bash -c 'echo $RANK' 2>&1 | sort | xargs)"

# A node loses power; a requeued job restarts on other nodes.
cat >script <<'END2'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2 --requeue
srun bash -c 'echo ${SLURM_RESTART_COUNT:-0}:$RANK:$SLURMD_NODENAME
    [ -n "$SLURM_RESTART_COUNT" ] || sleep 600' >>requeued
END2
sbatch -Q -o /dev/null script >/dev/null
until_true grep -q 0:3: requeued
lost=$(sed -n 's/^0:3://p' requeued)
kill -KILL "$(cat "slurm/slurmd.$lost.pid")"
check "a job whose node crashed is planned again" \
    until_true eval '[ "$(grep -c ^1: requeued)" = 4 ]'
check "... on other nodes" is "0 1 2 3" "$(sed -n "/:$lost\$/d
    s/^1:\(.\):.*/\1/p" requeued | sort | xargs)"
cluster restart slurm "$lost"
check "the node is back" until_true all_idle
check "... and in the plan" is "0 1 2 3 4 5 6 7" \
    "$(timeout 240 "${planned[@]}" bash -c 'echo $RANK' 2>&1 | sort | xargs)"
done_testing
