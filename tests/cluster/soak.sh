#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many sruns after each other, with and without flags: none fails, and none
# leaves a file, a descriptor, a process or memory behind. SRUNS=1000 is the
# long run of make check-cluster.
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2
sruns=${SRUNS:-50}
warm=20

# one I: an srun whose tasks answer as planned, or as without a plan
one()
{
    local flags=() wanted="none none none none" out
    if [ $(($1 % 2)) = 0 ]; then
        flags=(--gpus-per-node=2 --tp=2)
        wanted="0 1 2 3"
    fi
    out=$(timeout 60 srun -Q -N2 --ntasks-per-node=2 "${flags[@]}" \
        bash -c 'echo ${RANK-none}' 2>&1) || { echo "exit status $?"; return 1; }
    is "$wanted" "$(sort <<<"$out" | xargs)"
}

# run FROM TO: all of them, at least
run()
{
    local i failed=0
    for ((i = $1; i < $2; i++)); do
        one $i || { echo "... in srun $i"; failed=1; }
    done
    return $failed
}

settled()
{
    [ -z "$(squeue -h)" ] && [ -z "$(steps)" ] &&
        [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" = 2 ]
}
daemons=$(cat slurm/slurmd.node1.pid slurm/slurmd.node2.pid | xargs |
    tr ' ' ,)

# What there is of files, descriptors and processes, by name and number.
census()
{
    local pid
    until_true 20 settled
    find slurm -path slurm/log -prune -o -path slurm/state -prune -o -print |
        sort
    find /dev/shm /run -maxdepth 2 -name '*plait*' 2>/dev/null | sort
    for pid in ${daemons//,/ }; do
        # sockets come and go with the numbers of their connections
        ls -l "/proc/$pid/fd" | sed -n 's/.* -> //p' |
            sed 's/socket:.*/socket/' | sort
        ps -o comm= --ppid "$pid"
    done
}

# KiB of both slurmds
rss()
{
    awk '/^VmRSS/ { n += $2 } END { print n }' \
        /proc/${daemons%,*}/status /proc/${daemons#*,}/status
}

check "the first $warm sruns" run 0 $warm
before=$(census)
rss_before=$(rss)
check "$((sruns - warm)) more" run $warm "$sruns"
check "leave no file, descriptor or process" is "$before" "$(census)"
rss_after=$(rss)
echo "# slurmd's memory: $rss_before KiB, then $rss_after KiB"
# A leak of 1 KiB in each would show: 512 KiB at 1,000 sruns on two nodes.
check "slurmd does not grow" [ $((rss_after - rss_before)) -le \
    $((sruns > 500 ? 512 : 256)) ]
done_testing
