#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every task of a planned step finds the whole launch contract, which equals the
# plan that `plait plan` prints.
. "$top_srcdir/tests/cluster/tap.sh"

contract="PLAIT_RANK PLAIT_WORLD_SIZE PLAIT_LOCAL_RANK PLAIT_LOCAL_WORLD_SIZE
PLAIT_NODE_RANK PLAIT_NNODES PLAIT_TP_SIZE PLAIT_TP_RANK PLAIT_CP_SIZE
PLAIT_CP_RANK PLAIT_EP_SIZE PLAIT_EP_RANK PLAIT_DP_SIZE PLAIT_DP_RANK
PLAIT_PP_SIZE PLAIT_PP_RANK PLAIT_ORDER PLAIT_GPU PLAIT_GPU_BUSID PLAIT_NICS
PLAIT_CPUS PLAIT_JOBID RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK
GROUP_RANK MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
SLURM_PLAIT_PLAN"

# run DIR ARGUMENTS...: run a step; the environment of task i is in DIR/i
run()
{
    local out=$work/$1
    shift
    mkdir -p "$out"
    OUT=$out timeout 240 srun "$@" bash -c 'env >"$OUT/$SLURM_PROCID"'
}

# get DIR TASK NAME
get()
{
    sed -n "s/^$3=//p" "$work/$1/$2"
}

# column DIR NAME: the values of all tasks in PROCID order
column()
{
    local i
    for i in $(ls "$work/$1" | sort -n); do
        get "$1" "$i" "$2"
    done | tr '\n' ' ' | sed 's/ $//'
}

# by_rank DIR: the node of each PLAIT_RANK
by_rank()
{
    local i
    for i in $(ls "$work/$1"); do
        echo "$(get "$1" "$i" PLAIT_RANK) $(get "$1" "$i" SLURMD_NODENAME)"
    done | sort -n | cut -d' ' -f2 | xargs
}

whole()
{
    local i name bad=0
    for i in 0 1 2 3 4 5 6 7; do
        for name in $contract; do
            grep -q "^$name=" "$work/$1/$i" ||
                { echo "task $i has no $name"; bad=1; }
        done
    done
    return $bad
}

torch_invariants()
{
    local i r l w n
    for i in 0 1 2 3 4 5 6 7; do
        r=$(get $1 $i RANK) l=$(get $1 $i LOCAL_RANK)
        w=$(get $1 $i LOCAL_WORLD_SIZE) n=$(get $1 $i NODE_RANK)
        [ $((r / w)) = "$n" ] && [ $((r % w)) = "$l" ] &&
            [ "$n" = "$(get $1 $i GROUP_RANK)" ] &&
            [ "$r" = "$(get $1 $i PLAIT_RANK)" ] || return 1
    done
}

# From "node dp pp" of each task: each tp group must be on one node.
tp_groups_share_a_node()
{
    local i groups
    groups=$(for i in 0 1 2 3 4 5 6 7; do
        echo "$(get $1 $i SLURMD_NODENAME) $(get $1 $i PLAIT_DP_RANK)" \
            "$(get $1 $i PLAIT_PP_RANK)"
    done | sort | uniq -c)
    is "4" "$(grep -c '^ *2 ' <<<"$groups")"
}

planned()
{
    "$plait" plan --tp=2 --pp=2 --nodes 'node[1-4]' --tasks-per-node 2 \
        --fabric "$work/slurm/topology.conf" --json |
        python3 -c '
import json, sys
for r in json.load(sys.stdin)["ranks"]:
    print(r["procid"], r["node"], r["local"], r["rank"], r["tp"], r["cp"],
          r["ep"], r["dp"], r["pp"])'
}

seen()
{
    local i
    for i in 0 1 2 3 4 5 6 7; do
        echo "$i $(get $1 $i SLURMD_NODENAME) $(get $1 $i LOCAL_RANK)" \
            "$(get $1 $i RANK) $(get $1 $i PLAIT_TP_RANK)" \
            "$(get $1 $i PLAIT_CP_RANK) $(get $1 $i PLAIT_EP_RANK)" \
            "$(get $1 $i PLAIT_DP_RANK) $(get $1 $i PLAIT_PP_RANK)"
    done
}

check "a planned step runs" run plain -N4 --ntasks-per-node=2 \
    --gpus-per-node=2 --tp=2 --pp=2
check "all variables in all tasks" whole plain
check "no variable of torchrun's agent" is "" "$(grep TORCHELASTIC plain/*)"
check "ranks follow the leaves, not the names" \
    is "node1 node1 node3 node3 node2 node2 node4 node4" "$(by_rank plain)"
check "SLURM_PROCID is Slurm's own" \
    is "0 1 2 3 4 5 6 7" "$(column plain SLURM_PROCID)"
check "torchrun's invariants hold" torch_invariants plain
check "each tp group shares a node" tp_groups_share_a_node plain
check "sizes are those asked for, dp inferred" is "2 1 1 2 2" \
    "$(for a in TP CP EP DP PP; do get plain 0 PLAIT_${a}_SIZE; done | xargs)"
check "one MASTER_PORT for all" \
    is 1 "$(column plain MASTER_PORT | tr ' ' '\n' | sort -u | wc -l)"
check "PLAIT_JOBID is job.step" like "$(get plain 3 PLAIT_JOBID)" '^[0-9]+\.0$'
check "LOCAL_RANK indexes the GPUs, all visible" \
    is "0,1 0,1" "$(get plain 2 CUDA_VISIBLE_DEVICES) $(
        get plain 3 CUDA_VISIBLE_DEVICES)"
check "PLAIT_GPU" is "0 1 0 1 0 1 0 1" "$(column plain PLAIT_GPU)"
check "PLAIT_CPUS is not empty" [ -n "$(get plain 0 PLAIT_CPUS)" ]
if "$plait" plan --help >/dev/null 2>&1 && command -v python3 >/dev/null; then
    check "the tasks saw what plait plan prints" \
        is "$(planned | cut -d' ' -f2- | sort)" \
        "$(seen plain | cut -d' ' -f2- | sort)"
else
    skip "the tasks saw what plait plan prints" "no plait plan or python3"
fi

check "--placement=linear" run linear -N4 --ntasks-per-node=2 --tp=2 \
    --placement=linear
check "... keeps Slurm's order" \
    is "0 1 2 3 4 5 6 7" "$(column linear RANK)"
# A host file that deals tasks to the nodes in another order.
printf 'node%d\n' 4 3 2 1 >hostfile
export SLURM_HOSTFILE=$work/hostfile
check "a host file" run reverse -n4 --distribution=arbitrary --tp=1 --placement=linear
unset SLURM_HOSTFILE
check "... is Slurm's own order" is "0 1 2 3" "$(column reverse RANK)"
check "... on its nodes" is "node4 node3 node2 node1" "$(by_rank reverse)"
# Programs that only read SLURM_PROCID get the placement by Slurm's own layout.
"$plait" plan --tp=1 --pp=2 --nodes 'node[1-4]' --tasks-per-node 1 \
    --fabric slurm/topology.conf --hostfile hostfile >/dev/null
export SLURM_HOSTFILE=$work/hostfile
check "the host file of plait plan" run planned -n4 --distribution=arbitrary \
    --tp=1 --pp=2
unset SLURM_HOSTFILE
check "... makes SLURM_PROCID the planned rank" is \
    "0 1 2 3|node1 node3 node2 node4" \
    "$(column planned RANK)|$(by_rank planned)"
check "--rank-order" run order -N4 --ntasks-per-node=2 --tp=2 --pp=2 \
    --rank-order=tp-cp-ep-pp-dp --placement=linear
check "... changes coordinates, not ranks" is "0 0 1 1 0 0 1 1" \
    "$(column order PLAIT_PP_RANK)"
cat >"$work/model.yaml" <<END
model: {family: llama, layers: 32, hidden: 4096, heads: 32, kv_heads: 8,
        ffn: 14336, vocab: 32000, seq_len: 4096}
train: {global_batch: 64, micro_batch: 1, precision: bf16}
END
chosen=$("$plait" plan --tp=auto --pp=auto --model="$work/model.yaml" \
    --nodes='node[1-4]' --tasks-per-node=2 |
    sed -n 's/^8 tasks on 4 nodes: \([^,]*\),.*/\1/p')
check "--tp=auto --pp=auto --model" run model -N4 --ntasks-per-node=2 \
    --tp=auto --pp=auto --model="$work/model.yaml"
check "... takes what plait plan takes: $chosen" \
    is "$chosen" "$(for axis in tp dp pp; do
        size=$(get model 0 "PLAIT_${axis^^}_SIZE")
        [ "$size" = 1 ] && [ $axis != dp ] || echo "$axis=$size"
    done | xargs)"
check "--pin=none" run nopin -N4 --ntasks-per-node=2 --gpus-per-node=2 \
    --tp=2 --pin=none
check "... leaves the cores alone" is "" "$(get nopin 0 PLAIT_CPUS)"
check "--rendezvous=none" run norv -N4 --ntasks-per-node=2 --tp=2 \
    --rendezvous=none
check "... sets no RANK and no MASTER_ADDR" \
    is "" "$(get norv 0 RANK)$(get norv 0 MASTER_ADDR)"
check "... but PLAIT_RANK" is "node1 node1 node3 node3 node2 node2 node4 node4" \
    "$(by_rank norv)"
check "a step without GPUs" run nogpu -N4 --ntasks-per-node=2 --tp=2
check "... has none, and its cores" is "-1  yes" "$(get nogpu 5 PLAIT_GPU) $(
    get nogpu 5 CUDA_VISIBLE_DEVICES) $(
    [ -n "$(get nogpu 5 PLAIT_CPUS)" ] && echo yes)"
check "--gres=gpu:2" run gres -N4 --ntasks-per-node=2 --gres=gpu:2 --tp=2
check "... is --gpus-per-node=2" is "0 1 0 1 0 1 0 1|0,1" \
    "$(column gres PLAIT_GPU)|$(get gres 7 CUDA_VISIBLE_DEVICES)"
check "--gpus=8" run gpus -N4 --ntasks-per-node=2 --gpus=8 --tp=2
check "... too" is "0 1 0 1 0 1 0 1" "$(column gpus PLAIT_GPU)"
check "--gpus-per-task=1 --gpu-bind=none" run pertask -N4 \
    --ntasks-per-node=2 --gpus-per-task=1 --gpu-bind=none --tp=2
check "... hides no GPU: all are listed, or nothing is" is "" \
    "$(column pertask CUDA_VISIBLE_DEVICES | tr ' ' '\n' | grep -vx -e 0,1)"
printf '#!/bin/sh\n#SBATCH %s\nsrun sh -c "echo \\$RANK"\n' \
    '-N2 --ntasks-per-node=2 --cpus-per-task=1 --tp=2 -o cores.out' >cores.sh
check "a batch job that gives its tasks cores" timeout 240 sbatch -W cores.sh
check "... has ranks" is "0 1 2 3" "$(sort cores.out | xargs)"
check "the user's --gpu-bind" run gpubind -N4 --ntasks-per-node=2 \
    --gpus-per-node=2 --gpu-bind=map_gpu:1,0 --tp=2
check "... wins" is "1 1" "$(for i in 0 1; do
    get gpubind $i CUDA_VISIBLE_DEVICES | tr , '\n' | wc -l; done | xargs)"
check "... and LOCAL_RANK is the index of the one GPU that a task sees" is \
    "0 0 0 0 0 0 0 0|0 1 0 1 0 1 0 1" \
    "$(column gpubind LOCAL_RANK)|$(column gpubind PLAIT_LOCAL_RANK)"

# Six tasks on four nodes: ranks still follow the nodes' order.
check "nodes with different numbers of tasks" run unequal -N4 -n6 --tp=1 --pp=2
check "... have all ranks, each node's together" is "0 1 2 3 4 5|4" "$(
    column unequal RANK | tr ' ' '\n' | sort -n | xargs)|$(
    by_rank unequal | tr ' ' '\n' | uniq | wc -l)"
check "... and their own LOCAL_WORLD_SIZE" is "$(
    by_rank unequal | tr ' ' '\n' | sort | uniq -c |
        awk '{ for (i = 0; i < $1; i++) print $1 }' | sort | xargs)" "$(
    column unequal LOCAL_WORLD_SIZE | tr ' ' '\n' | sort | xargs)"
check "cyclic distribution" run cyclic -N4 --ntasks-per-node=2 --tp=2 \
    --distribution=cyclic
check "... keeps tp groups on a node" tp_groups_share_a_node cyclic
check "... and torchrun's invariants" torch_invariants cyclic
check "the user's MASTER_PORT wins" \
    env MASTER_PORT=23456 "OUT=$work" timeout 240 srun -N2 --tp=1 bash -c \
    '[ $MASTER_PORT = 23456 ]'
check "the user's --cpu-bind wins" timeout 240 srun -N1 -n2 --tp=2 \
    --cpu-bind=map_cpu:0,0 bash -c '[ "$PLAIT_CPUS" = 0 ] &&
    [ "$(taskset -cp $$ | sed "s/.*: //")" = 0 ]'
show=$(timeout 240 srun -N4 --ntasks-per-node=2 --tp=2 --pp=2 --show-plan true \
    2>&1)
check "--show-plan prints a table" \
    like "$show" '2-3 +node3 +leaf0 +4-5 +0-1 +1 +0'
check "... and what each axis crosses" like "$show" \
    'tp inside a node, dp under one leaf switch, pp across leaf switches'
done_testing
