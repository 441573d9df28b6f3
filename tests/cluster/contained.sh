#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# With SlurmdParameters=contain_spank (Slurm 24.05) slurm_spank_user_init() runs
# in a process whose files the tasks do not inherit, so it waits itself until all
# nodes have agreed. No task of a planned step starts before, there too.
# srun would ask for a configuration first.
version=$(PATH=${SLURM_PREFIX:+$SLURM_PREFIX/sbin:}$PATH:/usr/sbin slurmctld -V)
number=${version##* } # of "slurm 26.05.3" or "slurm-wlm 22.05.8"
[ "$(printf '%s\n' 24.05 "$number" | sort -V | head -n 1)" = 24.05 ] ||
    { echo "1..0 # SKIP $version has no contain_spank"; exit 0; }
. "$top_srcdir/tests/cluster/late.sh" \
    --conf SlurmdParameters=config_overrides,contain_spank
cached

# late: start a step on three nodes, of which node2 is late, and return when the
# others wait for it: each has two processes then, the step daemon and that of
# slurm_spank_user_init()
late()
{
    rm -f started.* out
    touch "$TEST_HOLD/node2"
    srun -Q -w 'node[1-3]' --ntasks-per-node=2 --tp=2 \
        bash -c 'touch started.$SLURM_PROCID' >out 2>&1 &
    step=$!
    until_true eval '[ "$(steps | wc -w)" = 4 ]'
}

check "all tasks have ranks" is "0 1 2 3 4 5 6 7" \
    "$(by_rank -N4 --ntasks-per-node=2 --tp=2 bash -c 'echo $RANK' | xargs)"
late
check "no task starts before the last node" is "" \
    "$(sleep 6; ls started.* 2>/dev/null)"
check "... and then all do" in_time
wait $step
check "... without a word" is "0 6 " "$? $(ls started.* | wc -l) $(cat out)"

check_ends_of_late

late
kill -STOP $step
# Their step daemons do, as Slurm's do for any step.
check "nor for one that is stopped" until_true \
    eval '[ "$(steps | wc -w)" -le 2 ]'
rm -f "$TEST_HOLD/node2"
kill -CONT $step
check "... which says so once it goes on" in_time
check "... in one line" is 1 "$(grep -c plait: out)"
check "... and no task has started" is "" "$(ls started.* 2>/dev/null)"
check "... and nothing is left" until_true quiet

# one_line PATTERN SRUN_ARGUMENT...: refused so, and no task has started
one_line()
{
    rm -f started.*
    refused "$1" srun -Q "${@:2}" bash -c 'touch started.$SLURM_PROCID' &&
        is "" "$(ls started.* 2>/dev/null)"
}
check "what the nodes tell is one line" \
    one_line 'plait: node[1-4]: .*--gpus-per-node=2,.*other node' \
    -N4 --ntasks-per-node=2 --gpus-per-node=1 --tp=2
plugstack_of node4
# srun cannot see here that the tasks of node4 have started, as those of node3
# have not: it names node4 once node3 has given up.
unplanned()
{
    local out
    rm -f started.*
    out=$(timeout 240 srun -Q -w 'node[3-4]' --ntasks-per-node=2 --tp=2 bash -c \
        '[ $SLURM_NODEID = 1 ] || touch started.$SLURM_PROCID' 2>&1) && return 1
    is 1 "$(grep -c 'plait: node4: started tasks without a plan' <<<"$out")"
}
check "a node without the plugin is named" unplanned
check "... and the other starts none" is "" "$(ls started.* 2>/dev/null)"
# slurmstepd asks slurmctld of a job where the site has limits for some.
echo 'policies: [{user: nobody, enabled: false}]' >site.yaml
sed -i "s:\$: site=$PWD/site.yaml:" slurm/plugstack.conf
check "a site with limits for others" is "0 1" \
    "$(by_rank -w node1 -n2 --tp=2 bash -c 'echo $RANK' | xargs)"
check "the nodes are not drained" is idle "$(until_true quiet
    sinfo -h -o %T | sort -u)"
done_testing
