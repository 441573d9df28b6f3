#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many sruns, with and without flags: none fails, and none leaves a file, a
# descriptor, a process or memory behind. node1's slurmd has loaded the plugin;
# node2's has not, and shows how much memory Slurm alone needs.
# SRUNS=1000 is the long run of make check-cluster. With several arenas a thread
# that begins one of its own would grow a slurmd by more than is looked for.
export MALLOC_ARENA_MAX=1
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2
sruns=${SRUNS:-50}
warm=20

mv slurm/plugstack.conf plugstack
: >slurm/plugstack.conf
cluster restart slurm node2
mv plugstack slurm/plugstack.conf

# loaded NODE: whether its slurmd has loaded the plugin
loaded()
{
    grep -q spank_plait "/proc/$(cat "slurm/slurmd.$1.pid")/maps"
}
check "node1's slurmd has the plugin" loaded node1
check "node2's has not" eval '! loaded node2'

# one I: an srun whose tasks report the planned ranks, or none without a plan
one()
{
    local flags=() wanted="none none none none" out
    if [ $(($1 % 2)) = 0 ]; then
        flags=(--gpus-per-node=2 --tp=2)
        wanted="0 1 2 3"
    fi
    out=$(timeout 240 srun -Q -N2 --ntasks-per-node=2 "${flags[@]}" \
        bash -c 'echo ${RANK-none}' 2>&1) || { echo "exit status $?"; return 1; }
    is "$wanted" "$(sort <<<"$out" | xargs)"
}

# run FROM TO: run all of these sruns, and count failures
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
daemons=$(cat slurm/slurmd.node1.pid slurm/slurmd.node2.pid)

# Names of all processes of this cluster: daemons have its directory in their
# arguments, all others in their environment.
processes()
{
    local f
    for f in $(grep -lF "$work/slurm/" /proc/[0-9]*/{cmdline,environ} \
        2>/dev/null | sed 's:/[a-z]*$:/comm:' | sort -u); do
        # not this shell and its children
        [ "$(ps -o pgid= -p "${f//[^0-9]/}" | xargs)" = "$group" ] || cat "$f"
    done 2>/dev/null | sort | uniq -c
}
group=$(ps -o pgid= -p $$ | xargs)

# Names and numbers of the cluster's files, descriptors and processes. Files
# elsewhere may be another test's: run-tests checks those at its end.
census()
{
    local pid
    until_true settled
    processes
    find slurm -path slurm/log -prune -o -path slurm/state -prune -o -print |
        sort
    for pid in $daemons; do
        # the numbers of sockets change with their connections
        ls -l "/proc/$pid/fd" | sed -n 's/.* -> //p' |
            sed 's/socket:.*/socket/' | sort
        ps -o comm= --ppid "$pid"
    done
}

# rss: resident KiB of each slurmd
rss()
{
    local pid
    for pid in $daemons; do
        sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status"
    done | xargs
}

check "the first $warm sruns" run 0 $warm
before=$(census)
rss_before=$(rss)
check "$((sruns - warm)) more" run $warm "$sruns"
check "leave no file, descriptor or process" is "$before" "$(census)"
read -r with0 without0 with without <<<"$rss_before $(rss)"
grown=$((with - with0)) grown_without=$((without - without0))
echo "# slurmd's memory: $with0 KiB and $grown more, without the plugin" \
    "$without0 KiB and $grown_without more"
# A leak of 1 KiB per srun would show: 490 KiB at 1,000 sruns, half of them
# planned.
check "slurmd does not grow more than without the plugin" \
    [ $((grown - grown_without)) -le $((sruns > 500 ? 256 : 128)) ]
done_testing
