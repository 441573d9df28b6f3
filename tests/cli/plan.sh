#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plait plan and plait estimate as a user sees them: their output, the fields of
# their JSON that other tools rely on, and their exit codes.
plait=$top_builddir/plait
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
LC_ALL=C PLAIT_SITE=
export LC_ALL PLAIT_SITE
. "$top_srcdir/tests/lib/check.sh"

refused() { # code text command...
    code=$1 text=$2
    shift 2
    timeout 240 "$plait" "$@" >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ $got = "$code" ] && [ "$(wc -l <"$tmp/err")" = 1 ] &&
        [ "$(cat "$tmp/err")" = "plait: $text" ] && [ ! -s "$tmp/out" ]
    check "$text" $?
    [ "$(cat "$tmp/err")" = "plait: $text" ] ||
        sed "s/^/# exit $got: /" "$tmp/err"
}

cat >"$tmp/topology.conf" <<END
SwitchName=s0 Nodes=n[1,3]
SwitchName=s1 Nodes=n[2,4]
SwitchName=s2 Switches=s[0-1]
END
cat >"$tmp/model.yaml" <<END
model: {family: llama, layers: 32, hidden: 4096, heads: 32, kv_heads: 8,
        ffn: 14336, vocab: 128256, seq_len: 8192}
train: {global_batch: 128, micro_batch: 1, precision: bf16}
END
top_srcdir=$(cd "$top_srcdir" && pwd)
cd "$tmp" || exit 1

plan="plan --tp=2 --pp=2 --nodes=n[1-4] --tasks-per-node=2
    --fabric=topology.conf"
"$plait" $plan --hostfile hosts --svg plan.svg >text
check 'plan succeeds' $?
grep -q '^8 tasks on 4 nodes: tp=2 dp=2 pp=2, rank order tp-cp-ep-dp-pp$' text
check 'dp is inferred' $?
[ "$(tr '\n' ' ' <hosts)" = "n1 n1 n3 n3 n2 n2 n4 n4 " ]
check 'the host file goes leaf by leaf' $?
grep -q '<svg xmlns' plan.svg && grep -q '</svg>' plan.svg &&
    [ "$(grep -c 'class="p0"' plan.svg)" = 5 ]
check 'the picture has a box per task, coloured by stage' $?
grep -q '>8 ranks on 4 nodes: tp 2, dp 2, pp 2</text>' plan.svg &&
    [ "$(grep -c 'class="leaf"' plan.svg)" = \
        "$(grep -c '>s[01]</text>' plan.svg)" ]
check 'a title of the axes that there are, a bar for each switch' $?
[ "$(grep -A1 'class="spine"' plan.svg | grep -c '>s2</text>')" = 1 ] &&
    grep -q '<title>rank 3: tp1 dp1 pp0, on n3</title>' plan.svg
check 'and the spine above them, each rank with its place' $?
"$plait" $plan --hostfile - | cmp -s - hosts
check 'on standard output too' $?
for wrong in '--hostfile no/where' '--svg no/where' '--json --svg -'; do
    "$plait" $plan $wrong >out 2>err
    case $? in 1 | 2) [ ! -s out ] && [ "$(wc -l <err)" = 1 ] ;; esac
    rc=$?
    check "$wrong: $(head -n 1 err)" $rc
done
"$plait" $plan --placement=linear --hostfile hosts >/dev/null &&
    [ "$(uniq hosts | tr '\n' ' ')" = "n1 n2 n3 n4 " ]
check 'linear keeps the order of the list' $?
"$plait" $plan --json >one.json && "$plait" $plan --json | cmp -s - one.json
check 'the same plan twice, byte for byte' $?

if command -v python3 >/dev/null; then
    python3 - <<'END'
import json
d = json.load(open("one.json"))
assert (d["world"], d["tp"], d["cp"], d["ep"], d["dp"], d["pp"]) == \
    (8, 2, 1, 1, 2, 2)
assert d["order"] == "tp-cp-ep-dp-pp"
assert [r["procid"] for r in d["ranks"]] == list(range(8))
assert [r["rank"] for r in d["ranks"]] == [0, 1, 4, 5, 2, 3, 6, 7]
assert [r["node"] for r in d["ranks"]] == \
    ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"]
for r in d["ranks"]:
    assert r["tp"] + 2 * r["dp"] + 4 * r["pp"] == r["rank"]
    assert r["rank"] % 2 == r["local"] and r["cp"] == r["ep"] == 0
    assert r["gpu"] == r["local"]
for c in (d["cost"], d["linear_cost"]):
    axes = sum(c[a + "_s"] for a in ("tp", "cp", "ep", "dp", "pp"))
    assert abs(axes - c["step_s"]) < 1e-12
assert d["cost"]["step_s"] < d["linear_cost"]["step_s"]
assert d["bound_s"] <= d["cost"]["step_s"]
assert d["groups"]["dp"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
END
    check 'the JSON of a plan' $?
    "$plait" estimate --model model.yaml --gpus 8 --tp 8 --json >est.json
    python3 - <<'END'
import json
e = json.load(open("est.json"))
h, f, v, l = 4096, 14336, 128256, 32
layer = 2 * h * h + 2 * h * 1024 + 3 * h * f + 2 * h
assert e["parameters"] == l * layer + 2 * v * h + h
m = e["memory_bytes"]
assert abs(sum(m[k] for k in ("weights", "gradients", "optimizer",
    "activations", "buffers")) - m["total"]) < 1
assert abs(e["flops_per_step"] / e["step_s"] / 8 / 1e12 /
           e["tflops_per_gpu"] - 1) < 1e-9
assert abs(128 * 8192 / e["step_s"] / e["tokens_per_s"] - 1) < 1e-9
assert e["mfu_causal"] < e["mfu"] < 1
tokens = 20 * e["parameters"]
assert abs(tokens / e["tokens_per_s"] / 86400 / e["days"] - 1) < 1e-9
END
    check 'the JSON of an estimate' $?
    "$plait" plan --auto --model model.yaml --gpus 64 --json >auto.json
    python3 - <<'END'
import json
a = json.load(open("auto.json"))
c = a["choices"]
assert len(c) == 10 and a["world"] == 64
assert all(x["tp"] * x["cp"] * x["dp"] * x["pp"] == 64 for x in c)
assert all(x["step_s"] <= y["step_s"] * 1.0001 for x, y in zip(c, c[1:]))
assert c[0]["reason"] == "" and all(x["reason"] for x in c[1:])
assert all(x["memory_bytes"] <= 85e9 for x in c)
END
    check 'the JSON of --auto' $?
else
    echo "# no python3: JSON is not looked into"
fi
"$plait" plan --auto --model model.yaml --gpus 16 --gpu-type h100 >text &&
    grep -q '^srun -N2 --ntasks-per-node=8 --gpus-per-node=8 --tp=' text &&
    grep -q '  plait-train model.yaml --set parallel.zero=' text
check '--auto ends with a command for these nodes and this file' $?
echo 'parallel: {tp: 2}' | cat model.yaml - >sized.yaml
"$plait" plan --auto --model sized.yaml --gpus 16 --precision fp16 \
    --set model.seq_len=4096 --tp 4 >text &&
    grep -q " --set train.precision=fp16 --set model.seq_len=4096 " text &&
    grep -q ' --tp=4 ' text && grep -q ' --set parallel.tp=4 ' text
check "... with what was set beside the file, and in place of the file's sizes" $?
"$plait" plan --auto --model model.yaml --gpus 64 --cp 32 >text &&
    grep -q ' --cp=32 ' text
check 'a size that is given is kept, however large' $?
node='--gpus 16 --gpu-type h100 --set parallel.shard_group=node --zero 1 --pp 1'
! "$plait" plan --auto --model model.yaml $node --tp 8 2>err &&
    grep -qx 'plait: parallel.shard_group node: no layout of 16 GPUs has several of the ranks that share weights on each of several nodes' err &&
    "$plait" plan --auto --model model.yaml $node --tp 4 >text
check 'no layout whose nodes have one of the ranks that share weights' $?
"$plait" plan --auto --model model.yaml --gpus 16 --framework megatron >text &&
    grep -q '^--tensor-model-parallel-size ' text
check 'and with the arguments of other software' $?
echo 'gpu_types: {a100-40g: {headroom_gb: 0}}' >full.yaml
"$plait" plan --auto --model model.yaml --gpus 4 --gpu-type a100-40g \
    --site full.yaml --framework megatron >text &&
    grep -q ' 23 layers none ' text &&
    grep -q '^--recompute-granularity full --recompute-method block --recompute-num-layers 23$' text
check 'which recomputes as few layers as do' $?
"$plait" plan --auto --model model.yaml --gpus 8 --framework llm-foundry \
    >text && grep -q '^  sharding_strategy: ' text &&
    ! awk 'NR > 3 && /^ *[0-9].* GB / && ($1 > 1 || $2 > 1 || $4 > 1)' text | grep -q .
check 'and has no parallelism that the software lacks' $?
"$plait" plan --auto --model model.yaml --gpus 8 --framework internevo \
    >text && grep -q '^parallel = dict(zero1=dict(size=' text &&
    grep -q '^data = dict(micro_bsz=[0-9]*, micro_num=[0-9]*)$' text
check 'or lines of a configuration in Python' $?
for gpus in 4 8; do
    "$plait" plan --auto --model model.yaml --gpus $gpus --gpu-type a100-40g \
        --site full.yaml --framework torchtitan --pp $((gpus / 4)) || break
done >text && [ "$(grep -o '^--training.disable.*\|^activation.*' text | tr -d \\\\ |
    xargs)" = 'activation-checkpoint:full --training.disable_cuda_graphs activation-checkpoint:none' ]
check 'torchtitan 0.3: all layers recomputed or none, CUDA graphs or stages' $?
# Settings of the file that rule out some of what --auto tries.
"$plait" plan --auto --model model.yaml --gpus 64 --set sync.mode=diloco \
    --set sync.steps=50 --json >json 2>err &&
    grep -q '"pp": [^1]' json && ! grep -q '"zero": [^0]' json &&
    grep -q '"fewest_gpus": [^0]' json
check 'replicas that train apart, in more than one layout' $?
"$plait" plan --auto --model model.yaml --gpus 8 --json \
    --set parallel.grad_sync=flat >json && ! grep -q '"zero": [^0]' json
check 'grad_sync: flat goes with zero 0 alone' $?
"$plait" plan --auto --model model.yaml --gpus 8 --json \
    --set parallel.shard_group=node --set parallel.zero=1 >json &&
    ! grep -q '"zero": [^1-3]' json
check 'shard_group: node with all others' $?
deep='--set model.hidden=8192 --set model.heads=64 --set model.ffn=28672'
"$plait" plan --auto --model model.yaml --gpus 4 $deep --json >json &&
    grep -q '"offload": "optimizer"' json &&
    "$plait" plan --auto --model model.yaml --gpus 8 $deep --json \
        --set optim.name=muon >json && ! grep -q '"offload": "opt' json
check 'what muon keeps stays on the GPU' $?
"$plait" plan --auto --model model.yaml --gpus 8 $deep --set model.layers=112 \
    --json >json && grep -q '"fewest_gpus": 8$' json
check 'the fewest GPUs are those with the state in the host' $?
cat >resnet.yaml <<END
model: {family: resnet, depth: 50, input: [3, 224, 224], classes: 1000,
        norm: ghost, ghost_batch: 24}
train: {global_batch: 1536, micro_batch: 24, precision: fp32}
END
"$plait" plan --auto --model resnet.yaml --gpus 8 --json >json &&
    ! grep -q '"recompute": "[^n]' json && grep -q '"micro_batch": 48' json &&
    grep -q '"fewest_gpus": 1$' json
check 'a resnet recomputes nothing and has whole ghost batches' $?
sed 's/^train/parallel: {tp: auto, zero: 1, sequence: true}\n&/' model.yaml \
    >open.yaml
"$plait" estimate --model open.yaml --gpus 16 >text &&
    grep -q '^8.030 billion parameters on 16 h100 GPUs: tp=2 dp=8$' text &&
    "$plait" simulate --model open.yaml --gpus 16 | grep -q ': tp=2 dp=8 pp=1'
check 'a size that is auto is the fastest that fits' $?
refused 1 '--gpus is missing: a size is auto' estimate --model open.yaml
fit='--tp=2 --pp=4 or --tp=4 --pp=2 would fit'
refused 2 "8 tasks are not divisible by --pp=3; $fit" \
    estimate --model open.yaml --gpus 8 --pp 3
"$plait" simulate --model model.yaml --gpus 8 --pp 2 --virtual 2 >text &&
    grep -q interleaved text
check '--virtual 2 is the interleaved schedule' $?
"$plait" estimate --model model.yaml --gpus 8 --zero 3 >text &&
    grep -q '^8.030 billion parameters on 8 h100 GPUs: dp=8$' text &&
    grep -q 'MFU .* (attention in full), .* (causal half)$' text
check 'an estimate as text' $?
cat >site.yaml <<END
gpu_types: {h100: {memory_gb: 10}}
END
"$plait" estimate --model model.yaml --gpus 8 --site site.yaml |
    grep -q 'GB of 10: does not fit$'
check 'a site file overrides the table' $?
PLAIT_SITE=site.yaml "$plait" estimate --model model.yaml --gpus 8 |
    grep -q 'GB of 10: does not fit$'
check '$PLAIT_SITE names a site file' $?
echo 'gpu_type: b200' >b200.yaml
"$plait" estimate --model model.yaml --gpus 8 --site b200.yaml |
    grep -q '^8.030 billion parameters on 8 b200 GPUs'
check 'the site says what its GPUs are' $?

sed 's/^train:/parallel: {tp: 4}\ntrain:/' model.yaml >tp4.yaml
"$plait" plan --model tp4.yaml --tasks-per-node=8 >text &&
    grep -q '^8 tasks on 1 node: tp=4 dp=2,' text &&
    grep -q 'computation, bubble' text
check 'sizes of the model file count where no flag says otherwise' $?

# Without --nodes: what follows from the sizes, a node's file or Slurm's job.
# inferred FIRST SECOND COMMAND...: its line on stderr, the first one on stdout
inferred() {
    local said=$1 first=$2
    shift 2
    env -u SLURM_JOB_NODELIST "$@" >text 2>err &&
        [ "$(cat err)" = "plait: no $said" ] && grep -qF "$first" text
    check "no $said" $?
}
inferred '--nodes: 4 tasks, as the sizes need, on 1 node' \
    '4 tasks on 1 node: tp=2 dp=2,' "$plait" plan --tp=2 --dp=2
inferred '--nodes: 32 tasks, as the sizes need, on 4 nodes' \
    '32 tasks on 4 nodes: tp=8 dp=1 pp=4,' "$plait" plan --tp=8 --pp=4
inferred '--nodes: 4 tasks, as the sizes need, on 1 node' \
    '4 tasks on 1 node: ep=4 dp=4,' "$plait" plan --ep=4
inferred '--nodes: 28 tasks, as --tasks-per-node says, on 4 nodes' \
    '28 tasks on 4 nodes: dp=28,' "$plait" plan '--tasks-per-node=8(x3),4'
inferred '--nodes: 16 tasks, as the sizes need, on 2 nodes' \
    '16 tasks on 2 nodes: tp=8 dp=2,' \
    "$plait" plan --tasks-per-node=8 --tp=8 --dp=2
inferred '--nodes: 4 tasks, one for each GPU, on 1 node' \
    '4 tasks on 1 node: tp=2 dp=2,' "$plait" plan --tp=2 --node-hwloc \
    "$top_srcdir/tests/fixtures/hwloc/one-of-everything.xml"
inferred '--nodes: 4 tasks, as the sizes need, on 1 node' \
    '4 tasks on 1 node: tp=4 dp=1,' "$plait" plan --model tp4.yaml
inferred '--tasks-per-node: 4 on each node, as the sizes need' \
    '8 tasks on 2 nodes: tp=4 dp=2,' \
    "$plait" plan --nodes 'n[1-2]' --tp=4 --dp=2
inferred '--tasks-per-node: 8 on each node, as the sizes need' \
    '32 tasks on 4 nodes: tp=8 dp=4,' "$plait" plan --nodes 'n[1-4]' --tp=8
inferred "--nodes: 8 tasks on this job's a[1-2]" \
    '8 tasks on 2 nodes: tp=2 dp=4,' env SLURM_JOB_NODELIST='a[1-2]' \
    'SLURM_TASKS_PER_NODE=4(x2)' "$plait" plan --tp=2
inferred "--nodes: 4 tasks on this job's a[1-2]" \
    '4 tasks on 2 nodes: tp=2 dp=2,' env SLURM_JOB_NODELIST='a[1-2]' \
    'SLURM_TASKS_PER_NODE=1(x2)' "$plait" plan --tp=2 --dp=2
inferred '--nodes: 48 tasks, as the sizes need, on 6 nodes' \
    '48 tasks on 6 nodes: tp=8 dp=3 pp=2,' env SLURM_JOB_NODELIST='a[1-5]' \
    "$plait" plan --tp=8 --pp=2 --dp=3
refused 2 'plan: nothing says how many tasks there are; give sizes, as in --tp=2 --dp=4, or --nodes and --tasks-per-node' \
    plan
echo 'SwitchName=s Nodes=n[1-4]' >switch.conf
refused 2 'plan: --fabric needs --nodes, whose names are in it' \
    plan --tp=2 --fabric switch.conf
refused 2 'plan: --hostfile needs --nodes, whose names are in it' \
    plan --tp=2 --hostfile hosts.new

refused 2 '--tp=0 must be a whole number from 1 to 1048576, or "auto"' \
    plan --tp=0
refused 2 '--tp=4x must be a whole number from 1 to 1048576, or "auto"' \
    plan --tp=4x
refused 2 '--placement=here: must be topology or linear' plan --placement=here
refused 2 "plan: unexpected argument 'x'" plan x
"$plait" plan --auto --model model.yaml --over gpus=8,64 \
    --over train.global_batch=128,512 --over gpu-type=h100,b200 --csv >csv &&
    [ "$(wc -l <csv)" = 9 ] && ! awk -F, 'NF != 20' csv | grep . &&
    grep -q '^gpus,train.global_batch,gpu-type,tp,cp,ep,' csv &&
    grep -q '^64,512,b200,' csv
check '--over: every case is a line of CSV' $?
"$plait" plan --auto --model model.yaml --gpus 64 --gpu-type b200 \
    --global-batch 512 --json >case.json &&
    grep '^64,512,b200,' csv |
    awk -F, '{ printf "\"step_s\": %.5f\n", $15 }' >step &&
    grep -q "$(cut -c1-15 step)" case.json
check 'each the best of its own --auto' $?
"$plait" plan --auto --model model.yaml --over gpus=1,8 \
    --set model.layers=80 --set model.hidden=8192 --set model.heads=64 \
    --set model.ffn=28672 >text && grep -q '^ *1 none fits' text
check '--over: a case that nothing fits is said' $?
printf 'gpu_type: h100\ngpu_types: {h100: {leaf_gpus: 64, oversubscription: 4}}\n' \
    >leaf.yaml
for gpus in 64 512; do
    "$plait" estimate --model model.yaml --gpus $gpus --pp 2 --dp $((gpus / 2)) \
        --zero 1 --global-batch 512 --gpu-type h100 --json >free.json
    "$plait" estimate --model model.yaml --gpus $gpus --pp 2 --dp $((gpus / 2)) \
        --zero 1 --global-batch 512 --site leaf.yaml --json >shared.json
    cmp -s free.json shared.json
    echo $?
done >same
[ "$(tr '\n' ' ' <same)" = '0 1 ' ]
check 'within a leaf switch its uplinks do not count, beyond it they do' $?
grep '"step_s"' free.json shared.json | awk '{ t[NR] = $3 + 0 }
    END { exit !(NR == 2 && t[2] > t[1]) }'
check '... as time' $?
"$plait" estimate --model model.yaml --gpus 16384 --pp 4 --dp 4096 --zero 1 \
    --global-batch 16384 --tokens 1e15 --json >json &&
    sed -n 's/.*"goodput": \([0-9.]*\).*/\1/p' json |
    awk '{ exit !($1 > 0.89 && $1 < 0.91) }'
check "failures cost what Llama 3's training lost by them" $?
"$plait" estimate --model model.yaml --gpus 16384 --pp 4 --dp 4096 --zero 1 \
    --global-batch 16384 --tokens 1e15 | grep -q '^with failures .* days: one every 3.09 hours'
check '... and are told' $?
step="plan --auto --model model.yaml --nodes n[1-4] --tasks-per-node 8 --tp 8
    --pp 2 --dp 2 --gpu-type h100 --json"
"$plait" $step >free.json && "$plait" $step --fabric topology.conf >shared.json
least() { # FILE: its fastest step
    sed -n 's/.*"step_s": \([0-9.e-]*\).*/\1/p' "$1" | sort -g | head -n 1
}
awk -v a="$(least free.json)" -v b="$(least shared.json)" \
    'BEGIN { exit !(a > 0 && b > a) }'
check '--auto counts the uplinks of the leaves of --fabric' $?
step="${step% --json} --over train.micro_batch=1 --csv"
"$plait" $step >free.csv && "$plait" $step --fabric topology.conf >shared.csv &&
    seconds() { sed -n '2s/^\([^,]*,\)\{12\}\([^,]*\).*/\2/p' "$1"; } &&
    awk -v a="$(seconds free.csv)" -v b="$(seconds shared.csv)" \
        -v c="$(least shared.json)" \
        'BEGIN { exit !(a > 0 && b > a && b / c < 1.001 && c / b < 1.001) }'
check '... with --over' $?
refused 2 "--recompute=some: recompute must be none, selective or full, not 'some'" \
    estimate --model model.yaml --recompute some
refused 2 "unrecognized option '--modle'; did you mean --model?" \
    estimate --modle model.yaml
refused 2 "unrecognized option '--quite-another'; see --help" \
    plan --quite-another
refused 2 "unrecognized option '--lr'; did you mean --set optim.lr=VALUE?" \
    plan --lr=1
refused 2 "unrecognized option '--pin'; see --help" plan --pin=none
refused 2 "unrecognized option '-np'; did you mean --tasks-per-node?" \
    plan -np 4
refused 2 "unrecognized option '-N2'; did you mean --nodes?" plan -N2
refused 2 "unknown option '-np'; plait run --np=N -- COMMAND starts N tasks on this machine" \
    -np 4 true
refused 2 "'torchrun' is not a plait command; did you mean 'run'?" \
    torchrun --nproc_per_node=4 train.py
refused 2 "option '--model' requires an argument" simulate --model
refused 2 "option '--json' doesn't allow an argument" plan --json=x
refused 2 "option '--m' is ambiguous" plan --m model.yaml
refused 2 "--set model.hidden_size=64: unknown key 'hidden_size' in model; did you mean 'hidden'?" \
    estimate --model model.yaml --set model.hidden_size=64
"$plait" plan --tp=auto --nodes 'n[1-4]' --tasks-per-node 8 >text &&
    grep -q '^32 tasks on 4 nodes: tp=8 dp=4,' text
check '--tp=auto on 4 nodes of 8 is 8' $?
refused 2 'plan: --over needs --auto' plan --model model.yaml --over gpus=8
refused 2 'plan: --csv needs --over' plan --auto --model model.yaml --csv
refused 2 'plan: --over prints a table, or CSV with --csv, and no JSON' \
    plan --auto --model model.yaml --over gpus=8 --json
refused 2 'plan: --over=gpus: must be KEY=VALUE,VALUE,... as in gpus=8,64 or model.seq_len=4096,8192' \
    plan --auto --model model.yaml --over gpus
refused 2 'plan: --auto needs --model' plan --auto
refused 2 'plan: --auto compares layouts and places none; give the sizes of one with --svg' \
    plan --auto --model model.yaml --gpus 8 --svg auto.svg
refused 2 'unknown framework "horovod"; must be one of plait, megatron, torchtitan, llm-foundry, megatron-2021 and internevo' \
    estimate --model model.yaml --framework horovod
refused 2 '16 tasks are not divisible by --tp=3; --tp=2 --dp=8 or --tp=4 --dp=4 would fit' \
    plan --tp=3 --nodes='n[1-2]' --tasks-per-node=8
refused 2 '--tp=8 does not fit in a node: n1 has 4 tasks; --tp=4 would fit' \
    plan --tp=8 --nodes='n[1-4]' --tasks-per-node=4
# tasks OPTIONS: which ones the command of --auto has srun start
tasks() {
    "$plait" plan --auto --model model.yaml --gpu-type h100 \
        --set train.global_batch=192 "$@" |
        sed -n 's/^\(.*srun .*\) --tp=.*/\1/p'
}
[ "$(tasks --gpus 12)" = \
    'srun -N2 --ntasks-per-node=6 --gpus-per-node=6' ]
check 'as many tasks as GPUs, on nodes that have equally many' $?
[ "$(tasks --nodes 'n[1-2]' --tasks-per-node 8,4)" = \
    "SLURM_HOSTFILE=FILE srun -N2 -n12 --distribution=arbitrary --gpus=12" ]
check '... or that a host file gives as many as they have' $?
# However the GPUs of a node are said, the same layouts are as fast.
echo 'gpu_types: {h100: {per_node: 4}}' >four.yaml
machine=$top_srcdir/tests/fixtures/hwloc/one-of-everything.xml
auto='plan --auto --model model.yaml --gpu-type h100'
"$plait" $auto --gpus 16 --site four.yaml --json >four.json &&
    ! "$plait" $auto --gpus 16 --json | cmp -s - four.json
check '16 GPUs in nodes of 4 are not 16 in nodes of 8' $?
for nodes in '--tasks-per-node 4' "--node-hwloc $machine"; do
    "$plait" $auto --nodes 'n[1-4]' $nodes --json | cmp - four.json
    check "nodes of 4: $nodes" $?
done
over='--over train.global_batch=128,256 --csv'
"$plait" $auto --gpus 16 --site four.yaml $over >four.csv &&
    "$plait" $auto --nodes 'n[1-4]' --tasks-per-node 4 $over | cmp - four.csv
check '... with --over' $?
# Requests that srun refuses.
refused 2 'node n1 is named twice' plan --nodes=n1,n2,n1
refused 2 'node n1 has 5 tasks but 4 GPUs' \
    plan --nodes=n1 --tasks-per-node=5 --node-hwloc "$machine"
refused 2 '--nodes=n[1-: "[1-" lacks a closing bracket' plan --nodes='n[1-'
refused 2 '--tasks-per-node=2,x: must be one number, or one for each of the 4 nodes as in 8(x3),4' \
    plan --nodes='n[1-4]' --tasks-per-node=2,x
for list in '8(x5)' '8(x0)' '8,8(x-1)'; do
    refused 2 "--tasks-per-node=$list: must be one number, or one for each of the 4 nodes as in 8(x3),4" \
        plan --nodes='n[1-4]' --tasks-per-node="$list"
done
refused 2 'estimate: --model is missing' estimate
types=$("$top_builddir/plait" estimate --help | sed -n '/--gpu-type/{n;s/^ *//p;}')
refused 2 "no GPU type \"h1000\"; did you mean h100? There are $types" \
    estimate --model model.yaml --gpu-type h1000
refused 2 'no GPU type "a100"; did you mean a100-40g, a100-80g or a100-64g?' \
    estimate --model model.yaml --gpu-type a100
refused 2 "no GPU type \"tpu-v5e\"; there are $types" \
    estimate --model model.yaml --gpu-type tpu-v5e
refused 2 "'estimat' is not a plait command; did you mean 'estimate'?" \
    estimat
echo 'gpu_types: {h1000: {matmul: 1}}' >bad.yaml
refused 1 "bad.yaml:1: no GPU type \"h1000\" (did you mean h100?); to define a type of your own, add like: TYPE" \
    estimate --model model.yaml --site bad.yaml
echo 'gpu_types: {H100: {matmul: 1}}' >bad.yaml
refused 1 'bad.yaml:1: gpu_types: the type is written h100' \
    estimate --model model.yaml --site bad.yaml
echo 'gpu_types: {h100: {nic_gbps: 400}}' >bad.yaml
refused 1 'bad.yaml:1: nic_gbps: 400 is 8 times the 50 that h100 has; the figure is the share of one GPU in one direction, in gigabytes (not gigabits) per second: a NIC of 400 Gb/s for each GPU is 50' \
    estimate --model model.yaml --site bad.yaml
echo 'gpu_types: {h100: {link_gbytes_s: 900}}' >bad.yaml
refused 1 'bad.yaml:1: link_gbytes_s: 900 is 2 times the 370 that h100 has; the figure is of one GPU in one direction, in gigabytes (not gigabits) per second: half of what a data sheet says of NVLink' \
    estimate --model model.yaml --site bad.yaml
echo 'gpu_types: {h100: {nic_gbps: 40, nic_gbytes_s: 40}}' >bad.yaml
refused 1 'bad.yaml:1: nic_gbps is the older name of nic_gbytes_s; only one of them may be given' \
    estimate --model model.yaml --site bad.yaml
echo 'gpu_types: {mine: {like: h1000}}' >bad.yaml
"$plait" estimate --model model.yaml --site bad.yaml 2>err
[ $? = 1 ] && grep -q '^plait: bad.yaml:1: like must be .*h100' err
check 'what a type is like must be there' $?
cat >mine.yaml <<END
gpu_types:
  mi308x: {like: mi325x, tflops: 2516, memory_gb: 288, units: 256}
  h100: {nic_gbps: 25}
END
"$plait" estimate --model model.yaml --gpus 8 --site mine.yaml \
    --gpu-type MI308X >text && grep -q ' on 8 mi308x GPUs:' text &&
    grep -q ' of 288$' text
check "a type of the site's own, in any case" $?
refused 2 "no GPU type \"mi308\"; did you mean mi308x? There are $types mi308x" \
    estimate --model model.yaml --site mine.yaml --gpu-type mi308
for type in h100 H100; do
    "$plait" estimate --model model.yaml --gpus 16 --zero 3 --site mine.yaml \
        --gpu-type $type --json >$type.json
done
cmp -s h100.json H100.json && ! "$plait" estimate --model model.yaml \
    --gpus 16 --zero 3 --json | cmp -s - h100.json
check "the site's figures count for a name in any case" $?
refused 2 'plan: --submit needs --auto' plan --submit --model model.yaml
refused 2 'plan: --submit needs --over gpus=A,B,... or --gpus N, and no other --over' \
    plan --auto --submit --model model.yaml --over gpu-type=h100,h200
for values in '' auto; do
    "$plait" plan --auto --submit --model model.yaml --over gpus=$values 2>err
    [ $? -lt 3 ] && [ "$(grep -c '^plait: plan: --over=gpus=' err)" = 1 ]
    check "--submit of no number: ${values:-nothing}" $?
done
refused 2 'plan: --submit asks for numbers of nodes and prints a table or JSON: without --nodes' \
    plan --auto --submit --model model.yaml --gpus 8 --nodes n1
refused 2 'plan: what follows -- goes to sbatch, with --submit' \
    plan --auto --model model.yaml --gpus 8 -- -p gpu
refused 2 "--set train.steps=x: steps must be a whole number from 1 to 1000000000000, not 'x'" \
    plan --auto --model model.yaml --gpus 8 --set train.steps=x
cat >moe.yaml <<END
model: {family: llama, layers: 16, hidden: 2048, heads: 16, kv_heads: 4,
        ffn: 768, vocab: 32000, seq_len: 4096, experts: 32, experts_top_k: 4}
train: {global_batch: 64, micro_batch: 1, precision: bf16}
END
for f in plait megatron; do
    "$plait" estimate --model moe.yaml --gpus 8 --ep 8 --framework $f \
        --json >$f.json
    "$plait" estimate --model moe.yaml --gpus 8 --ep 8 --framework $f >$f.text
done
moe() { # FRAMEWORK FIELD
    sed -n '/"memory_bytes"/,/}/s/.*"'$2'": \([0-9.]*\).*/\1/p' $1.json
}
[ "$(moe plait total)" = "$(moe plait worst)" ] &&
    [ "$(moe megatron total)" = "$(moe megatron expected)" ] &&
    awk -v a="$(moe plait expected)" -v b="$(moe plait worst)" \
        -v c="$(moe megatron expected)" -v d="$(moe megatron worst)" \
        'BEGIN { exit !(a > 0 && b > 1.1 * a && d > 1.1 * c && c > 0) }' &&
    grep -q 'experts of one GPU .* GB, which plait-train allocates$' plait.text &&
    grep -q 'spread over the experts .* GB, which is counted$' megatron.text
check 'memory with experts: expected and worst routing' $?
"$plait" plan --auto --model moe.yaml --gpus 8 --ep 8 --framework torchtitan \
    >text && grep -q '^--parallelism.expert_parallel_degree=8 ' text
check 'torchtitan is told how experts are spread' $?
refused 2 '6 tasks are not divisible by --tp=4; --tp=3 --dp=2 or --tp=6 would fit' \
    estimate --model model.yaml --gpus 6 --tp 4
refused 2 'plan: --micro-batch needs --model' \
    plan --micro-batch 2
echo "1..$n"
