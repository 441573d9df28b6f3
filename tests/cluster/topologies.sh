#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No step is refused because of the fabric: nodes in no switch, a partition with
# a topology of its own (Slurm 25.05), a torus and a ring (26.05), a scontrol
# that fails. srun says in one line what it lacks, and keeps Slurm's order.
# Jobs get nodes outside of the tree, as where cloud nodes join a cluster.
. "$top_srcdir/tests/cluster/tap.sh" --gpus 0 --conf TopologyParam=TopoOptional

# planned FLAGS...: the nodes in the order of the ranks, one task each
planned()
{
    timeout 240 srun -N4 --ntasks-per-node=1 --pp=4 --show-plan \
        "$@" true >out 2>err || { cat err; return 1; }
    awk '$1 ~ /^[0-9]+$/ { print $2 }' err | xargs
}
# own FLAGS...: the same in Slurm's order, which since 26.05 follows the topology
own()
{
    by_rank -N4 --ntasks-per-node=1 "$@" \
        bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME' | cut -d' ' -f2 | xargs
}
# warns TEXT FLAGS...: the step runs in Slurm's order, and says so once
warns()
{
    local text=$1 got
    shift
    got=$(planned "$@") || { echo "$got"; return 1; }
    is "$(own "$@")" "$got" && is 1 "$(grep -c 'plait:.*warning' err)" &&
        like "$(cat err)" "plait: warning: $text; the nodes stay in Slurm's order"
}
# again: the controller reads its files again, and all nodes are idle
again()
{
    scontrol reconfigure && within 60 eval \
        '[ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" = 4 ]'
}
check "by the switches, without a word" is "node1 node3 node2 node4" "$(planned)"
check "... nor does it warn" is 0 "$(grep -c warning err)"
printf 'SwitchName=leaf0 Nodes=node[1,3]\nSwitchName=leaf1 Nodes=node2\n' \
    >slurm/topology.conf
echo 'SwitchName=spine Switches=leaf[0-1]' >>slurm/topology.conf
check "the controller takes a tree that lacks a node" again
check "a node in no switch" warns 'no switch of the fabric has node node4'
check "... is no matter under --placement=linear" planned --placement=linear
check "... where nothing is said" is 0 "$(grep -c warning err)"

# Blocks of a file: every rank learns its NVLink domain.
printf 'BlockName=b1 Nodes=node[1,4]\nBlockName=b2 Nodes=node[2-3]\nBlockSizes=2\n' \
    >blocks.conf
domains()
{
    timeout 240 srun -N4 --ntasks-per-node=2 --tp=4 "$@" \
        bash -c 'echo $SLURMD_NODENAME $PLAIT_NVLINK_DOMAIN' | sort | uniq -c |
        awk '{ print $2, $3 }' | xargs
}
check "nodes of a block are in one NVLink domain" \
    is "node1 1 node2 2 node3 2 node4 1" "$(PLAIT_FABRIC=$PWD/blocks.conf domains)"
check "... where no block is known, none is named" \
    is "node1 0 node2 0 node3 0 node4 0" "$(domains --tp=2)"

# A controller that answers srun but not scontrol: the one beside srun is looked
# for first.
mkdir bin && cp "$(readlink -f "$(command -v srun)")" bin/srun
cat >bin/scontrol <<'END'
#!/bin/sh
echo 'scontrol: error: Unable to contact slurm controller' >&2
exit 1
END
chmod +x bin/scontrol
fails()
{
    PATH=$PWD/bin:$PATH warns 'scontrol show topology failed'
}
check "a scontrol that fails" fails

grep -q TorusName "$(dirname "$(command -v scontrol)")"/../lib/slurm/topology_torus3d.so \
    2>/dev/null || {
    skip "partitions with a topology, torus3d and ring" "this Slurm has none"
    done_testing
}
# The controller reads a topology.yaml by its plugins for JSON and YAML.
[ -f "$(dirname "$(command -v scontrol)")/../lib/slurm/serializer_json.so" ] || {
    skip "partitions with a topology, torus3d and ring" \
        "this Slurm was built without json-c"
    done_testing
}
cat >slurm/topology.yaml <<'END'
- topology: plain
  cluster_default: true
  flat: true
- topology: leaves
  cluster_default: false
  tree:
    switches:
      - {switch: top, children: "l[1-2]"}
      - {switch: l1, nodes: "node[1,3]"}
      - {switch: l2, nodes: "node[2,4]"}
- topology: racks
  cluster_default: false
  block:
    block_sizes: [2]
    blocks:
      - {block: r1, nodes: "node[1,4]"}
      - {block: r2, nodes: "node[2,3]"}
- topology: pod
  cluster_default: false
  torus3d:
    toruses:
      - name: pod1
        dims: {x: 2, y: 2, z: 1}
        nodes: "node[1-4]"
- topology: circle
  cluster_default: false
  ring:
    rings:
      - {ring: ring1, nodes: "node[1-4]"}
END
for name in leaves racks pod circle; do
    echo "PartitionName=$name Nodes=ALL Topology=$name State=UP"
done >>slurm/slurm.conf
rm slurm/topology.conf
check "the controller takes partitions with topologies" again
check "the default is flat: Slurm's order" is "$(own)" "$(planned)"
check "... without a word" is 0 "$(grep -c warning err)"
check "a partition's tree" is "l1 l1 l2 l2" \
    "$(planned -p leaves >/dev/null
        awk '$1 ~ /^[0-9]+$/ { print $3 }' err | xargs)"
check "a tp group over two nodes of a block" \
    timeout 240 srun -p racks -N4 --ntasks-per-node=1 --tp=2 --show-plan true
check "... is whole" is "r1 r1 r2 r2" "$(timeout 240 srun -p racks -N4 \
    --ntasks-per-node=1 --tp=2 --show-plan true 2>&1 |
    awk '$1 ~ /^[0-9]+$/ { print $3 }' | xargs)"
check "... also in a step of a job" timeout 240 salloc -Q -p racks -N4 \
    --ntasks-per-node=1 srun --tp=2 true
check "... and not where the partition has none" refused '--tp=2' \
    srun -p leaves -N4 --ntasks-per-node=1 --tp=2 true
for name in pod circle; do
    check "$name" warns '.*a torus or ring has no switches to plan by' -p $name
done
check "plait plan asks for it by name" is "node1 node3 node2 node4" \
    "$("$plait" plan --pp=4 --nodes='node[1-4]' --topology leaves --hostfile - |
        xargs)"
check "... and says so of a torus" refused 'a torus or ring has no switches' \
    "$plait" plan --pp=4 --nodes='node[1-4]' --topology pod
in_job()
{
    timeout 240 salloc -Q -p leaves -N4 --ntasks-per-node=1 \
        srun "$plait" run --pp=4 --show-plan -- true 2>&1 |
        awk '$1 ~ /^[0-9]+$/ { print $3 }' | xargs
}
check "plait run takes the partition's too" is "l1 l1 l2 l2" "$(in_job)"
done_testing
