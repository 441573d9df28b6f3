#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An upgrade node by node: srun and the nodes have two versions of the plugin,
# in every mix. A step then has its ranks, all of them, or is refused with one
# line before any task starts. PLAIT_OTHER_PLUGIN is the other spank_plait.so,
# as of the previous packages:
#   dpkg-deb -x slurm-plait-plugin_0.1.0-1_amd64.deb previous
other=${PLAIT_OTHER_PLUGIN:-}
[ -n "$other" ] ||
    { echo "1..0 # SKIP PLAIT_OTHER_PLUGIN names no other plugin"; exit 0; }
[ -r "$other" ] || { echo "1..0 # SKIP cannot read $other"; exit 0; }
other=$(readlink -f "$other")
. "$top_srcdir/tests/cluster/tap.sh" --nodes 4 --gpus 2

# The nodes 3 and 4 load a copy of the other one, so does srun with other.conf.
# A copy of each, as an upgrade replaces it under them.
cp "$other" other.so
cp "$plugin" this.so
sed "s:[^ ]*/spank_plait\.so:$PWD/other.so:" \
    slurm/plugstack.conf >slurm/other-plugstack.conf
sed "s:^PlugStackConfig=.*:PlugStackConfig=$PWD/slurm/other-plugstack.conf:" \
    slurm/slurm.conf >slurm/other.conf
grep -q "$PWD/other.so" slurm/other-plugstack.conf || exit 99
for node in node3 node4; do
    kill "$(cat slurm/slurmd.$node.pid)"
    until_true eval '! kill -0 "$(cat slurm/slurmd.$node.pid)" 2>/dev/null'
    setsid slurmd -D -N $node -f "$PWD/slurm/other.conf" >/dev/null 2>&1 &
    echo $! >slurm/slurmd.$node.pid
    check "$node works with the other plugin" \
        until_true timeout 20 srun -Q -w $node -n1 true
done

# mix CONF NODES: an srun with the plugin of CONF on NODES, two
mix()
{
    local rc said ranks
    rm -f started.*
    said=$(SLURM_CONF=$1 timeout 240 srun -Q -w "$2" -N2 --ntasks-per-node=2 \
        --tp=2 bash -c 'echo "${RANK:-none} $PLAIT_TP_RANK $PLAIT_DP_RANK" \
            >started.$SLURM_PROCID' 2>&1)
    rc=$?
    ranks=$(cat started.* 2>/dev/null | sort | tr '\n' ,)
    if [ $rc = 0 ]; then
        is '0 0 0,1 1 0,2 0 1,3 1 1,' "$ranks" && is '' "$said" &&
            outcome='all ranks'
    else
        is '' "$ranks" && is 1 "$(grep -c plait: <<<"$said")" &&
            outcome=$(grep plait: <<<"$said")
    fi
}
this=$PWD/slurm/slurm.conf
old=$PWD/slurm/other.conf
tell()
{
    check "$1" mix "$2" "$3"
    mix "$2" "$3" >/dev/null && echo "# $1: $outcome"
}
tell "srun and nodes of this version" "$this" 'node[1-2]'
tell "srun of this version, nodes of the other" "$this" 'node[3-4]'
tell "srun of this version, nodes of both" "$this" 'node[2-3]'
tell "srun and nodes of the other version" "$old" 'node[3-4]'
tell "srun of the other version, nodes of this" "$old" 'node[1-2]'
tell "srun of the other version, nodes of both" "$old" 'node[2-3]'

# The file is replaced while a step runs, as dpkg, rpm and make install do.
SLURM_CONF=$old timeout 240 srun -Q -w 'node[3-4]' -N2 --ntasks-per-node=2 --tp=2 \
    bash -c 'touch running.$SLURM_PROCID; until [ -e go ]; do sleep 0.1; done
        echo $RANK' >step.out 2>&1 &
step=$!
until_true eval '[ "$(ls running.* 2>/dev/null | wc -l)" = 4 ]'
cp this.so new.so
mv new.so other.so
touch go
wait $step
check "a step during which the plugin is upgraded ends well" \
    is '0 0 1 2 3 ' "$? $(sort step.out | tr '\n' ' ')"
tell "the next step on the upgraded nodes" "$this" 'node[2-3]'
done_testing
