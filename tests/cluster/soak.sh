#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many sruns after each other, with and without flags: none fails, and none
# leaves a file, a descriptor, a process or memory behind. node1's slurmd has
# loaded the plugin, node2's has not, and its memory is what Slurm alone takes.
# SRUNS=1000 is the long run of make check-cluster.
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2
sruns=${SRUNS:-50}
warm=20

mv slurm/plugstack.conf plugstack
: >slurm/plugstack.conf
cluster restart slurm node2
mv plugstack slurm/plugstack.conf

# loaded NODE: by its slurmd
loaded()
{
    grep -q spank_plait "/proc/$(cat "slurm/slurmd.$1.pid")/maps"
}
check "node1's slurmd has the plugin" loaded node1
check "node2's has not" eval '! loaded node2'

# one I: an srun whose tasks answer as planned, or as without a plan
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
daemons=$(cat slurm/slurmd.node1.pid slurm/slurmd.node2.pid)

# What this cluster runs, by name: its daemons know their directory by their
# arguments, and all else by its environment.
processes()
{
    local f
    for f in $(grep -lF "$work/slurm/" /proc/[0-9]*/{cmdline,environ} \
        2>/dev/null | sed 's:/[a-z]*$:/comm:' | sort -u); do
        # not this shell and what it starts to ask
        [ "$(ps -o pgid= -p "${f//[^0-9]/}" | xargs)" = "$group" ] || cat "$f"
    done 2>/dev/null | sort | uniq -c
}
group=$(ps -o pgid= -p $$ | xargs)

# What there is of files, descriptors and processes, by name and number. Files
# elsewhere may be another test's: run-tests looks for those at its end.
census()
{
    local pid
    until_true settled
    processes
    find slurm -path slurm/log -prune -o -path slurm/state -prune -o -print |
        sort
    for pid in $daemons; do
        # sockets come and go with the numbers of their connections
        ls -l "/proc/$pid/fd" | sed -n 's/.* -> //p' |
            sed 's/socket:.*/socket/' | sort
        ps -o comm= --ppid "$pid"
    done
}

# KiB of each slurmd
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
# A leak of 1 KiB would show: 490 KiB at 1,000 sruns, half of them planned.
check "slurmd does not grow more than without the plugin" \
    [ $((grown - grown_without)) -le $((sruns > 500 ? 256 : 128)) ]
done_testing
