#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A step of many nodes (NODES=256 in make check-cluster): every contract is
# right. RUNS=N: instead a benchmark of the launch time of TASKS tasks per node,
# N times with flags and N times without, alternately; times are printed but not
# checked.
nodes=${NODES:-64}
runs=${RUNS:-0}
tasks=${TASKS:-1}
. "$top_srcdir/tests/cluster/tap.sh" --nodes "$nodes" --gpus 0 \
    --cpus $((tasks > 4 ? tasks : 4)) --conf TreeWidth=16

# Prints PLAIT_* and torchrun's variables of one task in one line.
cat >task <<'END2'
#!/bin/sh
echo "$PLAIT_RANK $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE" \
    "$NODE_RANK $GROUP_RANK $PLAIT_NNODES" \
    "$PLAIT_TP_SIZE.$PLAIT_DP_SIZE.$PLAIT_PP_SIZE" \
    "$PLAIT_TP_RANK $PLAIT_DP_RANK $PLAIT_PP_RANK $MASTER_ADDR:$MASTER_PORT" \
    "$SLURMD_NODENAME"
END2
chmod 755 task

# The same lines, computed for tp=4, pp=8 and the rest dp.
wanted()
{
    awk -v nodes="$nodes" 'BEGIN {
        world = 4 * nodes; dp = world / 32
        for (r = 0; r < world; r++)
            print r, r, world, r % 4, 4, int(r / 4), int(r / 4), nodes, \
                "4." dp ".8", r % 4, int(r / 4) % dp, int(r / (4 * dp))
    }'
}

# Write one line per task, sorted by rank.
contracts()
{
    timeout 300 srun -N"$nodes" --ntasks-per-node=4 -O --tp=4 --pp=8 \
        ./task >lines || return 1
    sort -n lines >sorted
    is "$(wanted)" "$(cut -d' ' -f1-12 sorted)" || return 1
    is 1 "$(cut -d' ' -f13 sorted | sort -u | wc -l)" || return 1
    # each rank must be on the node that plait plan prints
    "$plait" plan --tp=4 --pp=8 --nodes "node[1-$nodes]" --tasks-per-node 4 \
        --fabric slurm/topology.conf --hostfile hosts >/dev/null &&
        is "$(cat hosts)" "$(cut -d' ' -f14 sorted)"
}
if [ "$runs" = 0 ]; then
    check "$nodes nodes, --tp=4 --pp=8: all $((4 * nodes)) contracts" contracts
    code=$(timeout 300 srun -Q -N"$nodes" --tp=1 --pp=8 -n"$nodes" bash -c \
        '[ $SLURM_PROCID = 0 ] && echo ${#SLURM_PLAIT_PLAN} || true')
    check "the plan takes less than 4 KiB" [ "$code" -lt 4096 ]
    done_testing
fi

quiet()
{
    [ -z "$(squeue -h)" ] && [ -z "$(steps)" ]
}

# seconds FILE FLAGS...: time a launch, once the previous one has ended entirely
seconds()
{
    local file=$1 start
    shift
    until_true quiet
    start=$EPOCHREALTIME
    timeout 300 srun -Q -N"$nodes" --ntasks-per-node="$tasks" -O "$@" true \
        >/dev/null 2>&1 || echo failed >>"$file"
    awk -v a="$start" -v b="$EPOCHREALTIME" \
        'BEGIN { printf "%.3f\n", b - a }' >>"$file"
}
for ((i = 0; i < runs; i++)); do
    # alternately, so that a machine that slows down slows both down
    if [ $((i % 2)) = 0 ]; then
        seconds plain
        seconds planned --tp="$tasks" --pp=4
    else
        seconds planned --tp="$tasks" --pp=4
        seconds plain
    fi
done
check "no srun of the benchmark failed" is "" "$(grep -h failed plain planned)"
echo "# without flags $(xargs <plain) s, with $(xargs <planned) s"
for f in plain planned; do sort -n $f | sed -n "$(((runs + 1) / 2))p"; done |
    xargs | awk -v n="$runs" '{ printf "# launch without flags %.3f s, " \
        "with %.3f s, medians of %d: ratio %.2f\n", $1, $2, n, $2 / $1 }'
done_testing
