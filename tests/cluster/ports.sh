#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MASTER_PORT if many steps share a node: steps of several jobs, concurrent
# steps of one job, and other programs. A node that starts twelve steps at once
# may be too busy to answer for a while.
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2 --cpus 64 --gpus 0 --timeout 240

# at_once N FLAGS...: run N jobs at once on the same nodes, each until all have
# started; print a line for each: its port, job and processors on RANK 0's node
at_once()
{
    local n=$1 i
    shift
    rm -f started.* lines go
    for ((i = 0; i < n; i++)); do
        timeout 240 srun -Q "$@" bash -c '
            [ $RANK = 0 ] || exec sleep 0.1
            cpus=$(scontrol show job -d $SLURM_JOB_ID |
                sed -n "s/^ *Nodes=[^ ]* CPU_IDs=\([^ ]*\).*/\1/p")
            echo $MASTER_PORT $SLURM_JOB_ID $cpus >started.$SLURM_JOB_ID
            until [ -e go ]; do sleep 0.1; done' 2>>errors &
    done
    until_true eval "[ \$(cat started.* | wc -l) = $n ]"
    touch go
    wait
    cat started.* >lines
    is "$n " "$(wc -l <lines) $(cat errors)" &&
        is "" "$(cut -d' ' -f1 lines | sort | uniq -d)"
}

# outside LOW HIGH: ports of jobs that are not in LOW .. HIGH
outside()
{
    awk -v low="$1" -v high="$2" '$1 < low || $1 > high { print $1 }' lines
}

check "12 jobs at once on one node have a port each" \
    at_once 12 -w node1 -N1 -n2 --pp=2
check "... of Plait's" is "" "$(outside 25003 29399)"
check "8 jobs at once on two nodes have a port each" \
    at_once 8 -N2 -n2 --pp=2
check "... of Plait's" is "" "$(outside 25003 29399)"

for nodes in 1 2; do
    rm -f over.* go
    cat >script <<END
#!/bin/bash
#SBATCH -N$nodes -n4 --tp=1
for i in \$(seq 12); do
    srun -Q --overlap bash -c 'echo \$MASTER_PORT >over.\$SLURM_STEP_ID.\$RANK
        until [ -e go ]; do sleep 0.5; done' &
done
until [ \$(ls over.*.0 | wc -l) = 12 ]; do sleep 0.1; done
touch go
wait
END
    check "12 steps at once of a job on $nodes: run" \
        batch steps.out script
    check "... have a port each" is "48 12" \
        "$(ls over.* | wc -l) $(cat over.* | sort -u | wc -l)"
done

# Programs that are no steps listen on the port that the next job would get, and
# hold reservations of all others, as steps do. RANK 0's node must take another
# port, and all ranks must know it.
cat >squat <<'END'
import socket, sys, time
taken = [socket.create_server(("", int(p))) for p in sys.argv[2:]]
for port in range(25003, 25003 + int(sys.argv[1])):
    taken.append(socket.socket(socket.AF_UNIX))
    taken[-1].bind("\0plait-port-%d" % port)
open("squatting", "w")
time.sleep(60)
END
# squatted NAMES NODES: for a step on the first NODES nodes, print the port and
# how many ranks know it
squatted()
{
    local last port pid
    rm -f squatting
    last=$(srun -Q -n1 bash -c 'echo $SLURM_JOB_ID')
    port=$((25003 + (last + 1) * 2718 % 4397))
    python3 squat "$1" $port $((port + 1)) &
    pid=$!
    until_true [ -e squatting ]
    by_rank -w "node[1-$2]" --ntasks-per-node=$((4 / $2)) --tp=2 bash -c "echo \$((MASTER_PORT - $port))" |
        uniq -c | awk '{ print $2, $1 }'
    kill $pid
    wait $pid 2>/dev/null
}
if command -v python3 >/dev/null && [ "$(ulimit -Hn)" -ge 5000 ]; then
    ulimit -Sn "$(ulimit -Hn)"
    for on in 1 2; do
        check "a taken port is passed over, nodes: $on" is "2 4" \
            "$(squatted 0 $on)"
        check "... and where all are reserved, another is found" like \
            "$(squatted 4397 $on)" '^[0-9]{4,5} 4$'
    done
else
    skip "a taken port is passed over" "no python3"
fi
done_testing
