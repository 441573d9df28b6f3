#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --node-preflight on nodes with networks and processes of their own: quiet nodes
# pass, a slow link and busy cores are named. RUNS: number of quiet runs (2).
. "$top_srcdir/tests/cluster/own_networks.sh" tc
. "$top_srcdir/tests/cluster/tap.sh" --netns yes
export PLAIT_QUIET=1 # what is said of RANK and SLURM_PROCID is in ranks.sh

planned=(srun -Q -N4 --ntasks-per-node=2 --tp=2 --node-preflight)

# PID of the first process of node $1, by which to enter its namespaces.
pid_of()
{
    cat "slurm/slurmd.node$1.pid"
}

fly()
{
    timeout 240 "${planned[@]}" "$@" bash -c \
        'echo $RANK${SLURM_PLAIT_PREFLIGHT:+told}' 2>&1
    echo "status $?"
}

quiet=0
for _ in $(seq "${RUNS:-2}"); do
    fly >out
    [ "$(sort out | xargs)" = "0 1 2 3 4 5 6 7 status 0" ] ||
        { cat out; break; }
    quiet=$((quiet + 1))
done
check "quiet nodes pass" is "${RUNS:-2}" "$quiet$(
    [ "$quiet" = "${RUNS:-2}" ] || cat out)"
check "MASTER_PORT is free after it" like "$(timeout 240 "${planned[@]}" \
    python3 -c '
import os, socket
if os.environ["RANK"] == "0":
    socket.socket().bind(("", int(os.environ["MASTER_PORT"])))
    print("bound")' 2>&1)" "^bound$"

# As on many machines, node1's own name means a loopback address there.
mount --bind slurm/hosts /etc/hosts
sed 's/.* node1$/127.0.1.1 node1/' slurm/hosts >hosts1
nsenter -t "$(pgrep -P "$(pid_of 1)" | head -n 1)" -m \
    mount --bind "$work/hosts1" /etc/hosts
scontrol update nodename=node1 nodeaddr=node1
check "RANK 0's name is a loopback address on its node" is \
    "0 1 2 3 4 5 6 7 status 0" "$(fly | sort | xargs)"
scontrol update nodename=node1 nodeaddr=10.99.0.2

mv slurm/plugstack.conf plugstack
: >slurm/plugstack.conf
check "plait run without the plugin measures too" is "0 1 2 3 4 5 6 7" \
    "$(timeout 240 srun -Q -N4 --ntasks-per-node=2 "$plait" run --tp=2 \
        --preflight sh -c 'echo $RANK' 2>&1 | sort | xargs)"
mv plugstack slurm/plugstack.conf

end='[[:space:]]*srun'
# named PATTERN: one line reports it, and no task starts
named()
{
    fly >out
    like "$(cat out)" "$1" && is 1 "$(grep -c plait: out)" &&
        is "status 75" "$(tail -n 1 out)" && is 0 "$(grep -c '^[0-7]$' out)"
}

tc qdisc add dev veth3 root tbf rate 40mbit burst 32kb latency 400ms
check "a link that receives slowly is named" named \
    "preflight: node3: its link receives at 0\.[0-3][0-9] of the median \([^;]*\)$end"
tc qdisc delete dev veth3 root
nsenter -t "$(pid_of 2)" -n \
    tc qdisc add dev eth0 root tbf rate 40mbit burst 32kb latency 400ms
check "a link that sends slowly is named" named \
    "preflight: node2: its link sends at 0\.[0-3][0-9] of the median \([^;]*\)$end"
nsenter -t "$(pid_of 2)" -n tc qdisc delete dev eth0 root

first=$(pgrep -P "$(pid_of 4)" | head -n 1)
for _ in 1 2 3 4 5 6 7 8; do
    timeout 240 nsenter -t "$first" -p -m bash -c 'while :; do :; done' &
done
check "busy cores are named" named \
    "preflight: node4: other processes want its cores \([0-9.]* each; bash\)$end"
kill $(jobs -p) 2>/dev/null
wait
check "... and are quiet when they are" is "0 1 2 3 4 5 6 7 status 0" \
    "$(fly | sort | xargs)"

# All links are equally slow, which a comparison with the median cannot find:
# they are compared with the site's figures.
echo 'gpu_type: cpu
gpu_types: {cpu: {nic_gbps: 0.1, oversubscription: 1}}
preflight: {link: 0.25}' >site.yaml
sed -i "s|\$| site=$work/site.yaml|" slurm/plugstack.conf
check "links as the site plans them pass" is "0 1 2 3 4 5 6 7 status 0" \
    "$(fly | sort | xargs)"
for i in 1 2 3 4; do
    tc qdisc add dev veth$i root tbf rate 40mbit burst 32kb latency 400ms
done
check "links that are slow alike are named" named \
    "preflight: (node[1-4]: its link [^;]* of the plan [^;]*; ){3}node[1-4]: "
for i in 1 2 3 4; do
    tc qdisc delete dev veth$i root
done

sed -i 's/$/ preflight=yes/' slurm/plugstack.conf
planned=(srun -Q -N4 --ntasks-per-node=2 --tp=2)
tc qdisc add dev veth3 root tbf rate 40mbit burst 32kb latency 400ms
check "a site may demand it" named "preflight: node3: its link receives"
tc qdisc delete dev veth3 root
check "... but not without a port" refused "leave out --rendezvous=none" \
    srun -Q -N2 -n2 --tp=1 --rendezvous=none true
done_testing
