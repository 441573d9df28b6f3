#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An upgrade node by node: srun, sbatch and the nodes have two versions of the
# plugin, in every mix, or one for another release of Slurm. A step then has its
# ranks, all of them, or is refused with one line before any task starts.
# PLAIT_OTHER_PLUGIN is the other spank_plait.so, as of the previous packages:
#   dpkg-deb -x slurm-plait-plugin_0.1.0-1_amd64.deb previous
# Without it the other one is a second file of this version, which is replaced
# under jobs all the same.
other=${PLAIT_OTHER_PLUGIN:-$top_builddir/.libs/spank_plait.so}
[ -r "$other" ] ||
    { echo "1..0 # SKIP cannot read $other"; exit 0; }
other=$(readlink -f "$other")
. "$top_srcdir/tests/cluster/tap.sh" --nodes 4 --gpus 2

# The nodes 3 and 4 load a copy of the other one, so does srun with other.conf.
# A copy of each, as an upgrade replaces it under them.
mkdir other
cp "$other" other/spank_plait.so
cp "$other" was.so
cp "$plugin" this.so
sed "s:^[a-z]* [^ ]*/:optional $PWD/other/:" \
    slurm/plugstack.conf >slurm/other-plugstack.conf
sed "s:^PlugStackConfig=.*:PlugStackConfig=$PWD/slurm/other-plugstack.conf:" \
    slurm/slurm.conf >slurm/other.conf
grep -q "$PWD/other/spank_plait.so" slurm/other-plugstack.conf || exit 99
# becomes FILE: the other plugin's file is replaced, as dpkg, rpm and make
# install do
becomes() { cp "$1" new.so && mv new.so other/spank_plait.so; }
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

# A batch job has flags of the submit host's sbatch; its srun runs on the node.
cat >script <<'END'
#!/bin/bash
export SLURM_CONF=$1
srun -Q --output=$2.%t bash -c 'echo "${RANK:-none} $PLAIT_TP_RANK"'
END
# batch_mix SUBMIT_CONF NODE_CONF NODES
batch_mix()
{
    rm -f ranks.*
    SLURM_CONF=$1 batch batch.out -w "$3" -N2 --ntasks-per-node=2 --tp=2 \
        script "$2" ranks && is '' "$(cat batch.out)" &&
        is '0 0,1 1,2 0,3 1,' "$(sort ranks.* | tr '\n' ,)"
}
check "sbatch of this version, its srun of the other" \
    batch_mix "$this" "$old" 'node[3-4]'
check "sbatch of the other version, its srun of this" \
    batch_mix "$old" "$this" 'node[1-2]'

# Queued before the upgrade, started after it.
scontrol update partitionname=all state=down
queued=$(SLURM_CONF=$old sbatch --parsable -o queued.out -w 'node[3-4]' -N2 \
    --ntasks-per-node=2 --tp=2 script "$old" queued)
# The file is replaced while a step runs, too.
scontrol update partitionname=all state=up
scontrol hold "$queued"
SLURM_CONF=$old timeout 240 srun -Q -w 'node[3-4]' -N2 --ntasks-per-node=2 --tp=2 \
    bash -c 'touch running.$SLURM_PROCID; until [ -e go ]; do sleep 0.1; done
        echo $RANK' >step.out 2>&1 &
step=$!
until_true eval '[ "$(ls running.* 2>/dev/null | wc -l)" = 4 ]'
becomes this.so
touch go
wait $step
check "a step during which the plugin is upgraded ends well" \
    is '0 0 1 2 3 ' "$? $(sort step.out | tr '\n' ' ')"
scontrol release "$queued"
until_true eval '[ -z "$(squeue -h -j "$queued")" ]'
check "a job that was queued before the upgrade has its ranks" \
    is '0 0,1 1,2 0,3 1, ' "$(sort queued.? | tr '\n' ,) $(cat queued.out)"
tell "the next step on the upgraded nodes" "$this" 'node[2-3]'
becomes was.so
tell "the next one after a roll back" "$this" 'node[2-3]'

# For another release of Slurm: Slurm does not load it.
python3 - was.so release.so <<'END'
import struct, subprocess, sys
data = bytearray(open(sys.argv[1], "rb").read())
for line in subprocess.check_output(["readelf", "-Ws", "--dyn-syms",
                                     sys.argv[1]], text=True).splitlines():
    word = line.split()
    if len(word) == 8 and word[7] == "plugin_version":
        address = int(word[1], 16)
offset = struct.unpack_from("<Q", data, 32)[0]
for i in range(struct.unpack_from("<H", data, 56)[0]):
    kind, _, at, start, _, size = struct.unpack_from("<IIQQQQ", data,
                                                     offset + 56 * i)
    if kind == 1 and start <= address < start + size:
        struct.pack_into("<I", data, at + address - start, 0x140b00)
open(sys.argv[2], "wb").write(data)
END
becomes release.so
# without_it SRUN_ARGUMENT...: srun works, and knows no flags
without_it()
{
    local out
    SLURM_CONF=$old timeout 240 srun -Q "$@" true >plain.out 2>&1 ||
        { cat plain.out; return 1; }
    out=$(SLURM_CONF=$old timeout 240 srun -Q --tp=1 "$@" true 2>&1) && return 1
    like "$out" 'unrecognized option'
}
check "srun with a plugin for another release is one without" \
    without_it -w node1 -n1
check "... which doctor says" like \
    "$(SLURM_CONF=$old timeout 240 "$plait" doctor)" \
    "!!  plugin .*was built for Slurm 20.11, and this is "
names_the_node()
{
    local out
    rm -f started.*
    out=$(timeout 240 srun -Q -w 'node[2-3]' -N2 --ntasks-per-node=2 --tp=2 \
        bash -c 'sleep 20' 2>&1) && return 1
    is 1 "$(grep -c plait: <<<"$out")" && like "$out" 'plait: .*node3'
}
check "a node with a plugin for another release is one without, and named" \
    names_the_node
done_testing
