#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait doctor --nodes on four nodes with namespaces of their own, of which some
# are broken on purpose; and on a node that Slurm configures from afar.
ulimit -c 0 # a plugin that is cut short kills who loads it
so=$top_builddir/.libs/spank_plait.so
. "$top_srcdir/tests/cluster/tap.sh" --conf MpiParams=ports=9400-9499 \
    --conf SrunPortRange=32000-32400 \
    --conf SlurmctldParameters=enable_configless --netns yes
conf=slurm/plugstack.conf
mkdir plugins
good=$work/plugins/spank_plait.so
cp "$so" "$good"
echo "optional $good" >$conf

# says STATUS PATTERN ARGUMENT...: whether plait doctor exits so and prints
# PATTERN; what it prints is in `said`
says()
{
    local status=$1 pattern=$2 rc
    shift 2
    timeout 240 "$plait" doctor "$@" >said 2>&1
    rc=$?
    [ $rc = "$status" ] || { echo "exit status $rc"; cat said; return 1; }
    like "$(cat said)" "$pattern"
}

# on NODE COMMANDS: by a shell in the node's namespaces
on()
{
    nsenter -t "$(pgrep -P "$(cat "slurm/slurmd.$1.pid")" | head -n1)" -a \
        bash -c "$2"
}

check "four nodes with nothing wrong" says 0 \
    $'^4 nodes.*\nok  plugin .*spank_plait.so is for Slurm.*\nNothing is wrong' \
    --nodes 'node[1-4]'
check "... reach srun's host and each other" \
    grep -q "^ok  network .*host and the next node's ports can be reached" said
check "... say the same once, without names" is 0 "$(grep -c 'node\[' said)"
check "... and are all there are" says 0 '^4 nodes' --nodes all
check "a report is lines of JSON" is node3 "$(
    timeout 240 srun -w node3 "$plait" doctor --report |
        python3 -c 'import json, sys
lines = [json.loads(line) for line in sys.stdin]
assert lines[-1]["findings"] == len(lines) - 1, lines
print(*{line["node"] for line in lines})')"

touch none
on node2 "mount --bind '$work/none' '$work/$conf'"
check "a bare node" says 1 $'!!  plugstack .*install the package slurm-plait-plugin.*\n +1 of 4: node2\n' --nodes all
check "... as it says itself" like "$(srun -w node2 "$plait" doctor 2>&1)" \
    "!!  plugstack  no line of .*, and the plugin is not in "
on node2 "umount '$work/$conf'"
on node3 "mount -t tmpfs none '$work/plugins'"
check "a node without the plugin" says 1 \
    $'!!  plugin .*does not exist.*\n +1 of 4: node3\n' --nodes all
on node3 "head -c 30000 '$so' >'$good'"
check "one where it is cut short cannot report" says 1 \
    $'!!  report +no report came.*\n +1 of 4: node3\n' --nodes all
on node3 "cp '$so' '$good'; echo >>'$good'"
check "one with another build" says 0 \
    $'\nok  version .*\n +1 of 4: node3\n' --nodes all
check "... is said to be mixed" grep -q '^--  mixed .*not all have the same build' said
on node3 "umount '$work/plugins'"

# A node that lacks plait, one that lacks a library of plait's, and one where
# Slurm starts nothing are named, and the others report all the same.
# instead_of FILE PATTERN: so says doctor while node3 has a broken FILE
printf '#!/no/such/program\n' >broken
chmod 755 broken
instead_of()
{
    local file rc
    file=$(readlink -f "$1")
    on node3 "mount --bind '$work/broken' '$file'" || return
    says 1 "$2"$'\n +1 of 4: node3\n' --nodes all &&
        grep -q '3 of 4: node\[1-2,4\]' said
    rc=$?
    on node3 "umount '$file'"
    return $rc
}
check "a node without plait is named, and the others report" instead_of \
    "$plait" '!!  report +no report came: execve\(\): .*plait-tools.*'
check "... without a library" instead_of "$(ldd "$plait" |
    sed -n 's/.*libyaml.* => \(.*\) (.*/\1/p')" \
    '!!  report +no report came: error while loading shared lib.*libyaml.*'
check "... where Slurm starts no step" instead_of \
    "$(dirname "$(command -v slurmd)")/slurmstepd" \
    '!!  report +Slurm cannot start a task there: .*'

# Each node tries the one that has the next task: Slurm 26.05 deals tasks out in
# the order of the switches.
order=$(timeout 240 srun -Q -N4 -n4 bash -c \
    'echo $SLURM_PROCID $SLURMD_NODENAME' | sort -n | sed 's/.* //' | xargs)
next=$(sed 's/.*node3 //; s/ .*//' <<<"$order ${order%% *}")
address=$(grep -w "$next" slurm/hosts | cut -d' ' -f1)
on node3 "ip route add unreachable $address"
check "a node that does not reach another" says 1 \
    $'!!  network .*No route to host; .*9400-9499\n +1 of 4: node3 to '"$next"$'\n' \
    --nodes all
on node3 "ip route flush type unreachable"
# Frames to a wrong address are lost, as at a firewall that drops them.
on node3 "ip neigh replace $address \
    lladdr 02:00:00:00:00:01 dev eth0 nud permanent"
check "one whose packets are dropped" says 1 \
    $'!!  network .*Connection timed out; .*\n +1 of 4: node3 to '"$next"$'\n' \
    --nodes all
on node3 "ip neigh flush dev eth0 nud permanent"

scontrol update nodename=node1 state=drain reason=test
check "a drained node is not checked" says 0 \
    $'\\?\\?  report +not checked: the node is drained; .*\n +1 of 4: node1\n' \
    --nodes all
check "... which --strict minds" says 3 '1 of 4: node1' --nodes all --strict
scontrol update nodename=node1 state=resume
# Until its slurmd has answered it is "idle*", and gets no steps.
check "it is back" until_true eval \
    '[ "$(sinfo -h -N -o %T | grep -cx idle)" = 4 ]'
check "JSON is one document" is "True 4 node[1-4]" "$("$plait" doctor --json \
    --nodes all | python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d["good"], d["nodes"], *{c["nodes"] for c in d["checks"]})')"
check "no such node" says 2 "plait: doctor: Slurm knows no node of 'x" \
    --nodes 'x[1-2]'
check "inside of an allocation" like "$(salloc -Q -N4 "$plait" doctor \
    --nodes all 2>&1)" 'Nothing is wrong'

echo "required $work/gone/spank_plait.so" >$conf
check "srun does not start here" says 1 'srun: .*nitialization failed' \
    --nodes all
echo "optional $good" >$conf
done_testing
