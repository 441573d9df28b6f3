#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A node whose NIC has no link: what a preflight says of it goes into a line,
# a report and to the site's program, and examples/bad-node.sbatch goes on
# without the node. Nodes have a /sys/class of their own, with a recorded
# machine's NIC.
. "$top_srcdir/tests/cluster/own_networks.sh"
. "$top_srcdir/tests/cluster/tap.sh" --netns yes --nodes 4 --gpus 4 \
    --cpus 16 # task/affinity binds nothing where some are left over
export PLAIT_QUIET=1
cached
machine=$top_srcdir/tests/fixtures/hwloc/one-of-everything.xml
. "$top_srcdir/tests/cluster/planted.sh"

# port NODE STATE: that of its mlx5_0
port()
{
    nsenter -t "$(pgrep -P "$(cat "slurm/slurmd.node$1.pid")" | head -n 1)" -m \
        bash -c 'port=/sys/class/infiniband/mlx5_0/ports/1
        [ -d $port ] || mount -t tmpfs none /sys/class
        mkdir -p $port && echo "$1" >$port/state' - "$2"
}

# bad FILE: the nodes that a report says are not fit
bad()
{
    python3 -c 'import json, sys
print(*json.load(open(sys.argv[1]))["bad"])' "$1"
}

# The cache is for a machine with as many InfiniBand devices.
for i in 1 2 3 4; do
    port $i "4: ACTIVE"
done
check "a recorded machine takes this one's place" plant
mkdir -m 777 told
printf '#!/bin/sh\n{ id -u; cat; } >%s/told/$SLURM_JOB_ID\n' "$work" >hook
chmod 755 hook
echo "preflight: {hook: $work/hook}" >site.yaml
sed -i "s|\$| site=$work/site.yaml|" slurm/plugstack.conf

flags=(--ntasks-per-node=2 --gpus-per-node=2 --tp=2)
timeout 240 srun -Q -N4 "${flags[@]}" --node-preflight-report=good.json \
    touch 'ran.%t' >out 2>&1
check "sound nodes pass" is "" "$(cat out)"
check "... the report has them, and nobody is told" is "4  0" \
    "$(grep -c '"good": true' good.json) $(bad good.json) $(ls told | wc -l)"

port 2 "1: DOWN"
timeout 240 srun -Q -N4 "${flags[@]}" --node-preflight-report=bad.json \
    touch ran >out 2>&1
check "the step ends with status 75" is 75 $?
check "... says which node is bad, in one line" eval \
    'like "$(cat out)" "preflight: node2: mlx5_0: its port is DOWN" &&
        is 1 "$(grep -c plait: out)" && [ ! -e ran ]'
check "... and in its report" is node2 "$(bad bad.json)"
check "... which the site's program has too" eval \
    'tail -n +2 told/* | cmp - bad.json'

# As another user: the report and the program are his.
mkdir theirs && chown nobody theirs
(cd theirs && timeout 240 setpriv --reuid=nobody --regid=nogroup --clear-groups \
    srun -Q -N2 -w "node[1-2]" "${flags[@]}" \
    --node-preflight-report=theirs.json true >../out 2>&1)
check "another user's report is his" eval \
    'is "nobody node2" "$(stat -c %U theirs/theirs.json) $(
        bad theirs/theirs.json)" || { cat out; false; }'
check "... and so is the site's program" is "$(id -u nobody)" \
    "$(head -qn 1 told/"$(ls -t told | head -n 1)")"

cat >spares.sbatch <<'END'
#!/bin/bash
srun -Q --tp=2 --node-spares=1 --node-preflight-report=spares.json \
    bash -c 'echo $SLURMD_NODENAME $PLAIT_NICS'
END
batch out -N4 "${flags[@]:0:2}" spares.sbatch
check "--node-spares leaves it out and reports it" is \
    "node1 mlx5_0 node3 mlx5_0 node4 mlx5_0 node2" \
    "$(grep ^node out | sort -u | xargs) $(bad spares.json)"

mkdir bin
printf '#!/bin/sh\necho "$SLURMD_NODENAME $*"\n' >bin/plait-train
chmod 755 bin/plait-train
check "examples/bad-node.sbatch goes on without it" eval \
    'PATH=$work/bin:$PATH batch job.out -N3 --ntasks-per-node=2 \
        --gpus-per-node=2 "$top_srcdir/examples/bad-node.sbatch" job.yaml &&
    is "node1 job.yaml node3 job.yaml node4 job.yaml" \
        "$(grep "^node.*yaml" job.out | sort -u | xargs)" &&
    grep -q "^back into the queue without node2$" job.out'
done_testing
