#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MASTER_PORT where many steps share a node: jobs of others, steps at once of
# one job, and programs that are no steps at all.
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2 --cpus 64 --gpus 0

# at_once N FLAGS...: N jobs at once on the same nodes, each kept until all have
# started; one line each: its port, job and processors on RANK 0's node
at_once()
{
    local n=$1 i
    shift
    rm -f started.* lines go
    for ((i = 0; i < n; i++)); do
        timeout 120 srun -Q "$@" bash -c '
            [ $RANK = 0 ] || exec sleep 0.1
            cpus=$(scontrol show job -d $SLURM_JOB_ID |
                sed -n "s/^ *Nodes=[^ ]* CPU_IDs=\([^ ]*\).*/\1/p")
            echo $MASTER_PORT $SLURM_JOB_ID $cpus >started.$SLURM_JOB_ID
            until [ -e go ]; do sleep 0.1; done' 2>>errors &
    done
    until_true 90 eval "[ \$(cat started.* | wc -l) = $n ]"
    touch go
    wait
    cat started.* >lines
    is "$n " "$(wc -l <lines) $(cat errors)" &&
        is "" "$(cut -d' ' -f1 lines | sort | uniq -d)"
}

# outside LOW HIGH: the ports of the jobs that are not from LOW to HIGH
outside()
{
    awk -v low="$1" -v high="$2" '$1 < low || $1 > high { print $1 }' lines
}

# Each port of a step on both nodes belongs to one of its job's processors:
# no other job can have it, whatever its number.
strangers()
{
    local port job cpus cpu
    while read -r port job cpus; do
        cpu=$(((port - 63250) / (2246 / 64)))
        seq_of "$cpus" | grep -qx "$cpu" || echo "$port of $cpu, not $cpus"
    done <lines
}

# seq_of LIST: "0-2,5" as 0 1 2 5, one a line
seq_of()
{
    tr , '\n' <<<"$1" | while IFS=- read -r first last; do
        seq "$first" "${last:-$first}"
    done
}

check "12 jobs at once on one node have a port each" \
    at_once 12 -w node1 -N1 -n2 --pp=2
check "... of those for one node" is "" "$(outside 61003 63249)"
check "8 jobs at once on two nodes have a port each" \
    at_once 8 -N2 -n2 --pp=2
check "... of those for several" is "" "$(outside 63250 65495)"
check "... that belongs to their processors" is "" "$(strangers)"

for nodes in 1 2; do
    rm -f over.*
    cat >script <<END
#!/bin/bash
#SBATCH -N$nodes -n4 --tp=1
for i in \$(seq 12); do
    srun -Q --overlap bash -c 'echo \$MASTER_PORT >over.\$SLURM_STEP_ID.\$RANK
        until [ \$(ls over.*.0 | wc -l) = 12 ]; do sleep 0.1; done' &
done
wait
END
    check "12 steps at once of a job on $nodes: run" \
        batch steps.out script
    check "... have a port each" is "48 12" \
        "$(ls over.* | wc -l) $(cat over.* | sort -u | wc -l)"
done

# A program that is no step sits on the port that the next job would get: a
# step on one node takes another, and all of its ranks know.
cat >squat <<'END'
import socket, sys, time
taken = [socket.create_server(("", int(p))) for p in sys.argv[1:]]
open("squatting", "w")
time.sleep(60)
END
if command -v python3 >/dev/null; then
    last=$(srun -n1 bash -c 'echo $SLURM_JOB_ID')
    port=$((61003 + (last + 1) * 1389 % 2247))
    python3 squat $port $((port + 1)) &
    until_true 20 [ -e squatting ]
    check "a taken port is passed over" is "$((port + 2)) 2" \
        "$(by_rank -w node1 -n2 --tp=2 bash -c 'echo $MASTER_PORT' |
            uniq -c | awk '{ print $2, $1 }')"
    kill $!
else
    skip "a taken port is passed over" "no python3"
fi
done_testing
