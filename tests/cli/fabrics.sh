#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plait plan on fabrics of all kinds: those it can plan by, those it cannot,
# what it claims of them, and how it draws them.
plait=$top_builddir/plait
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
LC_ALL=C PLAIT_SITE=
export LC_ALL PLAIT_SITE
. "$top_srcdir/tests/lib/check.sh"
top_srcdir=$(cd "$top_srcdir" && pwd)
cd "$tmp" || exit 1

# What is not understood, or lacks a node, is one line; the nodes stay in
# Slurm's order.
stays() { # text arguments...
    text=$1
    shift
    "$plait" plan --pp=2 --nodes='n[1,3,2,4]' --hostfile hosts "$@" \
        >out 2>err
    [ $? = 0 ] && [ -s out ] && [ "$(cat err)" = \
        "plait: warning: $text; the nodes stay in Slurm's order" ] &&
        [ "$(tr '\n' ' ' <hosts)" = 'n1 n3 n2 n4 ' ]
    check "$text" $? || sed 's/^/# /' err
}
printf 'SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\n' >tree.conf
"$plait" plan --pp=2 --nodes='n[1,3,2,4]' --fabric tree.conf --hostfile hosts \
    >out 2>err && [ ! -s err ] && [ "$(tr '\n' ' ' <hosts)" != 'n1 n3 n2 n4 ' ]
check 'a tree orders them, without a word' $?
stays 'nowhere.conf: No such file or directory' --fabric nowhere.conf
mkdir folder
stays 'folder: Is a directory' --fabric folder
printf 'SwitchName=a Nodes=n1\0\n' >binary
stays 'binary: not a text file' --fabric binary
echo 'SwitchName=a Speed=1 Nodes=n[1-4]' >key.conf
stays 'key.conf:1: unknown key "Speed"; expected SwitchName, Switches, Nodes, LinkSpeed, BlockName or BlockSizes' \
    --fabric key.conf
printf 'TorusName=pod1 Dims=4x4x2 Nodes=n[1-32]\n  TorusName=pod1 PlacementDims=2x2x2 Anchors=4\n' \
    >torus
stays 'torus:1: a torus or ring has no switches to plan by' --fabric torus
echo 'RingName=r0 Nodes=n[1-32]' >ring
stays 'ring:1: a torus or ring has no switches to plan by' --fabric ring
cat >torus.yaml <<END
- topology: t
  cluster_default: true
  torus3d:
    toruses:
      - {name: pod1, dims: {x: 4, y: 4, z: 2}, nodes: 'n[1-32]'}
END
stays 'torus.yaml:1: a torus or ring has no switches to plan by' \
    --fabric torus.yaml
printf -- '- {topology: h, hypercube: {nodes: "n[1-4]"}}\n' >new.yaml
stays 'new.yaml:1: expected a topology of type tree, block or flat' \
    --fabric new.yaml
echo 'SwitchName=a Nodes=n[1-3]' >three.conf
stays 'no switch of the fabric has node n4' --fabric three.conf
"$plait" plan --nodes='n[1-4]' --fabric three.conf --placement=linear 2>err \
    >out && [ ! -s err ]
check 'a linear placement needs no switch' $?
# What the user asks for is refused where only switches could tell.
"$plait" plan --tp=4 --nodes='n[1-4]' --tasks-per-node=2 --fabric torus >out 2>err
[ $? = 2 ] && [ ! -s out ] && grep -q '^plait: warning: torus:1: ' err &&
    grep -q '^plait: --tp=4 does not fit in a node' err
check 'a tp group over several nodes needs blocks that are known' $?

# Several topologies in a file.
cat >several.yaml <<END
- {topology: none, cluster_default: true, flat: true}
- topology: cpu
  tree: {switches: [{switch: c1, nodes: 'c[1-8]'}]}
- topology: racks
  block:
    block_sizes: [2]
    blocks: [{block: r1, nodes: 'n[1-2]'}, {block: r2, nodes: 'n[3-4]'}]
END
wide='plan --tp=4 --nodes=n[1,3,2,4] --tasks-per-node=2 --fabric several.yaml'
"$plait" $wide --topology racks --hostfile hosts >out &&
    [ "$(uniq hosts | tr '\n' ' ')" = 'n1 n2 n3 n4 ' ] &&
    grep -q '^  switches .*the topology racks of several.yaml$' out
check 'one of them is named' $?
"$plait" $wide --hostfile hosts >out2 && cmp -s out out2
check 'without a name, the one that has the nodes' $?
"$plait" $wide --topology cpu >out 2>err
[ $? = 2 ] && [ ! -s out ] && grep -q 'no switch of the fabric has node n1' err
check 'a wrong one does not fit' $?
for name in gpu nothing; do
    "$plait" plan --nodes='n[1-4]' --fabric several.yaml --topology $name 2>err
    [ $? = 2 ] && [ "$(cat err)" = "plait: --topology=$name: several.yaml:1: there is no topology \"$name\"; there are none, cpu, racks" ]
    check "there is no topology $name" $? || cat err
done
"$plait" plan --nodes='n[1-4]' --fabric tree.conf --topology a 2>err
[ $? = 2 ] && [ "$(cat err)" = 'plait: --topology=a: tree.conf: its topology has no name; leave out --topology' ]
check 'nor a name in a file of one' $?

# What the times rest on.
"$plait" plan --pp=2 --nodes='n[1-4]' --fabric tree.conf >out &&
    grep -q '^  GPUs  *h100 (assumed: nothing says which; --gpu-type does)$' out &&
    grep -q '^  model  *7 billion parameters (assumed' out &&
    grep -q '^  oversubscription  *2 at each level of switches (assumed' out &&
    ! grep -q linear out && ! grep -q 'no order of these' out
check 'no gain over switches whose bandwidth nobody knows' $?
echo 'gpu_types: {h100: {oversubscription: 2}}' >site.yaml
"$plait" plan --pp=2 --nodes='n[1-4]' --fabric tree.conf --site site.yaml >out &&
    grep -q '^time per step  *planned  *linear$' out &&
    grep -q "^  oversubscription  *2 at each level of switches (the site's file)\$" out
check "with the site's oversubscription it is compared" $?
"$plait" plan --pp=2 --nodes='n[1-4]' >out && grep -q ' linear$' out &&
    ! grep -q oversubscription out
check 'and where there are no switches' $?
gpu() { # GPU type, where from, arguments...
    type=$1 from=$2
    shift 2
    "$plait" plan --nodes=n1 "$@" >out && grep -q "^  GPUs  *$type ($from" out
    check "GPUs: $type ($from" $? || grep GPUs out
}
machine=$top_srcdir/tests/fixtures/hwloc/one-of-everything.xml
sed 's/NVIDIA [A-Z0-9][^"]*/NVIDIA GB300/; s/10de:20b2/10de:31c2/' "$machine" \
    >gb300.xml
sed 's/NVIDIA [A-Z0-9][^"]*/NVIDIA Z9/; s/10de:20b2/10de:fff0/' "$machine" >z9.xml
# Each is half of an H100, whose figures are not the type's.
cat >parts.xml <<'.'
<system version="1"><cpu numaid="0">
<pci busid="0000:01:00.0" class="0x030200" vendor="0x10de" device="0x2330">
<gpu dev="0" sm="90"/><gpu dev="1" sm="90"/></pci></cpu></system>
.
echo 'gpu_type: mi300x' >mi300x.yaml
gpu gb300 gb300.xml --node-hwloc gb300.xml
gpu gb300 gb300.xml --node-hwloc gb300.xml --site mi300x.yaml
gpu b200 --gpu-type --node-hwloc gb300.xml --gpu-type b200
gpu mi300x "the site's file" --node-hwloc z9.xml --site mi300x.yaml
gpu h100 "assumed: the model of the node's GPUs" --node-hwloc z9.xml
gpu h100 "assumed: the model of the node's GPUs" --node-nccl parts.xml
"$plait" plan --nodes='n[1-4]' --node-hwloc gb300.xml --fabric tree.conf \
    --json >json && tr -d '\n ' <json | grep -q \
    '"assumed":{"gpu_type":"gb300","gpu_type_from":"gb300.xml","oversubscription":2.0,"oversubscription_known":false}}$'
check 'the JSON says so too' $?

# Racks that lack a node.
cat >uneven.conf <<END
BlockName=nvl0 Nodes=gb[001-018]
BlockName=nvl1 Nodes=gb[019-035]
BlockName=nvl2 Nodes=gb[036-053]
BlockName=nvl5 Nodes=gb[088-096]
END
"$plait" plan --tp=8 --nodes='gb[001-053,088-096]' --tasks-per-node 4 \
    --fabric uneven.conf 2>err
[ $? = 2 ] && [ "$(cat err)" = 'plait: --tp=8 takes 2 nodes of one block, but there are 17 nodes of block nvl1 (gb[019-035]), 9 nodes of block nvl5 (gb[088-096]), which 2 does not divide; ask for whole blocks (--segment=2) or a smaller --tp' ]
check 'uneven blocks: the odd ones are named' $? || cat err

# Pictures. Of 256 nodes below 8 leaves all stages are seen, and how many nodes
# each box stands for.
for i in 0 1 2 3 4 5 6 7; do
    echo "SwitchName=leaf$i Nodes=n[$((32 * i + 1))-$((32 * i + 32))]"
done >large.conf
echo 'SwitchName=spine Switches=leaf[0-7]' >>large.conf
large='plan --tp=4 --pp=8 --nodes=n[1-256] --tasks-per-node=4 --fabric large.conf'
"$plait" $large --svg large.svg >out
check 'a picture of 256 nodes' $?
for i in 0 1 2 3 4 5 6 7; do
    grep -q "class=\"p$i\"" large.svg && grep -q "^ .* 0 .*  $i " out ||
        grep -q " $i  *leaf" out || echo "stage $i"
done >missing
[ ! -s missing ]
check 'has all stages, and so has the table' $? || cat missing
shown=$(grep -c '<g class="b">' large.svg)
more=$(sed -n 's/.*>and \([0-9]*\) more<.*/\1/p' large.svg |
    awk '{ sum += $1 } END { print sum + 0 }')
[ "$shown" -le 64 ] && [ $((shown + more)) = 256 ]
check "$shown nodes stand for all 256" $?
for i in 0 1 2 3 4 5 6 7; do
    [ "$(grep -c ">leaf$i</text>" large.svg)" = 1 ] || echo "leaf$i"
done >missing
[ ! -s missing ] && [ "$(grep -c '>spine</text>' large.svg)" = 1 ]
check 'each switch is drawn once' $?
lines=$(sed -n '/^node /,/^ *(/p' out | grep -c leaf)
[ "$lines" -le 64 ] && [ "$(sed -n 's/.*, and \([0-9]*\) more such.*/\1/p' out |
    awk -v n="$lines" '{ n += $1 } END { print n }')" = 256 ]
check 'the table accounts for all nodes too' $?
# Ranks of nodes in an order that goes back and forth between switches.
"$plait" plan --tp=2 --pp=4 --nodes='n[1-8]' --tasks-per-node=2 --svg mixed.svg \
    --placement=linear --fabric large.conf >out && sed 's/leaf0 Nodes.*/leaf0 Nodes=n[1,3,5,7]/
    s/leaf1 Nodes.*/leaf1 Nodes=n[2,4,6,8]/' large.conf >mixed.conf &&
    "$plait" plan --tp=2 --pp=4 --nodes='n[1-8]' --tasks-per-node=2 \
        --placement=linear --fabric mixed.conf --svg mixed.svg >out &&
    [ "$(grep -c 'class="leaf"' mixed.svg)" = 2 ] &&
    [ "$(grep -c 'class="spine"' mixed.svg)" = 1 ]
check '... also where ranks alternate between switches' $?
# Branches of different depth, and a node at the top.
printf 'SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=m Switches=a,b\nSwitchName=t Switches=m Nodes=n5\n' \
    >deep.conf
"$plait" plan --nodes='n[1-5]' --fabric deep.conf --svg deep.svg >out &&
    [ "$(grep -c '>[abmt]</text>' deep.svg)" = 4 ]
check 'and where branches differ in depth' $?
"$plait" plan --tp=4 --nodes='n[1-4]' --tasks-per-node=2 --fabric several.yaml \
    --svg wide.svg >out && ! grep -q framed wide.svg &&
    ! grep -q 'class="frame"' wide.svg && grep -q 'NVLink blocks' wide.svg
check 'no legend of frames where none is drawn' $?
grep -q 'framed: a tp group' large.svg && grep -q 'class="frame"' large.svg
check 'one where they are' $?
printf 'Switch 36 "S-1" # "MF0;su0-leaf:MQM9700/U1" port 0\n[1] "H-1"[1](1) # "n1 mlx5_0" lid 1 4xNDR\n[2] "H-2"[1](1) # "n2 mlx5_0" lid 2 4xNDR\n' |
    cat - >ib && sed -i '1i vendid=0x2c9' ib
"$plait" plan --nodes='n[1-2]' --fabric ib --svg ib.svg >out &&
    grep -q '>su0-leaf</text>' ib.svg && grep -q '  su0-leaf$' out
check "a switch's own name instead of its GUID" $?
printf 'SwitchName=a-very-long-name-of-a-leaf-switch Nodes=n[1-2]\n' >long.conf
"$plait" plan --nodes='n1' --fabric long.conf --svg long.svg >out &&
    grep -q '>a-very[^<]*…</text>' long.svg &&
    grep -q '<title>a-very-long-name-of-a-leaf-switch: ' long.svg
check 'a long name ends in an ellipsis, and is whole in the tooltip' $?
echo "1..$n"
