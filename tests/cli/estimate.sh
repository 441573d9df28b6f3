#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait estimate of what does not fit: that comes first, with status 1, what is
# missing and a change; each change is pasted to the command and must fit, and
# no single setting may do what a change of several does. The run's length is
# the file's. plait plan --auto says what is free, and who needs offloading.
. "$top_srcdir/tests/lib/check.sh"
plait=$top_builddir/plait
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C PLAIT_SITE=
cd "$tmp" || exit 99

# model LAYERS HIDDEN HEADS FAMILY: model.yaml
model()
{
    cat >model.yaml <<END
model: {family: $4, layers: $1, hidden: $2, heads: $3, vocab: 32000,
        seq_len: 4096}
train: {global_batch: 64, micro_batch: 4, precision: bf16}
END
}
model 32 4096 32 llama
"$plait" estimate --model model.yaml --gpus 8 >out 2>err
[ $? = 1 ] && [ ! -s err ] &&
    head -n 1 out | grep -Eqx 'does not fit: the fullest GPU needs [0-9.]+ GB, [0-9.]+ more than the [0-9]+ of each h100' &&
    ! grep -q 'tokens/s\|days\|a step$' out
check "what does not fit is said first, without a speed, with status 1" $?
sed -n 2p out | grep -q '^the smallest change that fits: --'
check "then the smallest change" $?
"$plait" estimate --model model.yaml --gpus 8 --json >json
[ $? = 0 ] && grep -q '"fits": false' json && grep -q '"change": "--' json &&
    grep -q '"missing_bytes": [1-9]' json
check "the JSON has both, with status 0" $?
"$plait" estimate --model model.yaml --gpus 8 --zero 3 --micro-batch 1 --json >json
grep -q '"fits": true' json && grep -q '"change": ""' json &&
    grep -q '"missing_bytes": 0' json
check "and neither where it fits" $?
"$plait" estimate --model model.yaml --gpus 8 --zero 3 --micro-batch 1 >out
grep -q '"communicators": [1-9]' json &&
    grep -qx ' *of the buffers communicators  *[0-9.]* GB' out
check "what NCCL keeps is said" $?

"$plait" estimate model.yaml >out 2>err
[ $? = 2 ] && grep -qx "plait: estimate: unexpected argument 'model.yaml'; did you mean --model model.yaml?" err
check "a file without --model is told what it wants" $?
"$plait" estimate --model model.yaml --set model.layers=1 \
    --set model.hidden=64 --set model.heads=1 --set model.vocab=257 |
    grep -q '^0\.[0-9]* million parameters'
check "a small model has millions" $?

# singles OPTION...: which of these settings fits by itself
singles()
{
    local one
    for one in --zero={1,2,3} --micro-batch={2,1} --recompute={selective,full} \
        --sequence '--set parallel.offload='{optimizer,activations,both}; do
        "$plait" estimate "$@" $one >/dev/null 2>&1 && echo "# $one fits"
    done
}
tried=0 changed=0 bad=0 larger=0
for shape in "16 2048 16 gpt2" "32 4096 32 llama" "40 5120 40 llama" \
    "48 8192 64 llama" "80 8192 64 llama"; do
    model $shape
    for gpus in 1 8 64; do
        for sizes in "" --tp=8 --pp=4 "--tp=2 --pp=2"; do
            for type in h100 a100-40g; do
                for software in plait megatron llm-foundry; do
                args="--model model.yaml --gpus $gpus $sizes --gpu-type $type
                    --framework $software"
                "$plait" estimate $args >out 2>err
                [ $? = 1 ] && grep -q '^does not fit' out || continue
                tried=$((tried + 1))
                change=$(sed -n 's/^the smallest change that fits: \(.*\) (.*/\1/p' out)
                if [ -z "$change" ]; then
                    grep -q '^no change of layout or settings fits' out ||
                        { echo "# $args: neither"; bad=$((bad + 1)); }
                    continue
                fi
                changed=$((changed + 1))
                "$plait" estimate $args $change >again 2>&1 ||
                    { echo "# $args: not with $change"; head -n 3 again
                      bad=$((bad + 1)); }
                case $change in
                *" --"*) case $software$tried in plait*[05])
                    singles $args >fits
                    [ ! -s fits ] || { echo "# $args: $change"; cat fits
                        larger=$((larger + 1)); } ;;
                    esac ;;
                esac
                done
            done
        done
    done
done
echo "# $tried do not fit, $changed have a change"
[ $tried -ge 60 ] && [ $changed -ge 30 ] && [ $bad = 0 ]
check "every change that is named fits" $?
[ $larger = 0 ]
check "and none is larger than it must be" $?

model 32 4096 32 llama
"$plait" estimate --model model.yaml --gpus 8 --zero 3 --micro-batch 1 >out &&
    grep -q '^1.3[0-9]e+11 tokens (20 a parameter) take' out
check "without train.steps a run has 20 tokens a parameter" $?
"$plait" estimate --model model.yaml --gpus 8 --zero 3 --micro-batch 1 \
    --set train.steps=1000 >out &&
    grep -q '^2.62e+08 tokens (train.steps) take' out
check "with them it has those" $?
"$plait" estimate --model model.yaml --gpus 8 --zero 3 --micro-batch 1 \
    --set train.steps=1000 --set 'batch.growth=[[500, 128]]' >out &&
    grep -q '^3.93e+08 tokens (train.steps) take' out
check "also where the batch grows" $?
"$plait" estimate --model model.yaml --gpus 8 --zero 3 --micro-batch 1 \
    --set train.steps=1000 --tokens 1e9 >out &&
    grep -q '^1e+09 tokens take' out
check "--tokens comes before both" $?

# A folder is the configuration in it, and a size is what plait init writes.
mkdir -p ck/latest hub none
cp model.yaml ck/latest/plait.yaml
echo '{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 257,
    "intermediate_size": 128, "max_position_embeddings": 64}' >hub/config.json
for folder in ck:model.yaml hub:hub/config.json hub/:hub/config.json; do
    "$plait" estimate --model "${folder%:*}" --gpus 8 >out
    "$plait" estimate --model "${folder#*:}" --gpus 8 >want
    [ -s out ] && cmp -s out want
    check "--model of a folder: $folder" $?
done
"$plait" plan --model none --nodes n1 >out 2>err
[ $? = 1 ] && grep -qx "plait: plan: --model none: this folder has neither plait.yaml nor config.json" err
check "... with neither" $?
for command in "plan --nodes n[1-8] --tasks-per-node 8" "estimate --gpus 16" \
    "simulate --gpus 64 --gpu-type b200"; do
    rm -f 7b.yaml
    "$plait" $command --model 7b >out 2>err
    [ $? = 1 ] && [ "$(wc -l <err)" = 1 ] && [ ! -s out ]
    rc=$?
    check "a size is no file: $(cat err)" $rc
    advice=$(sed -n "s/.*; '\(plait init .*\)' writes one$/\1/p" err)
    PATH=$(dirname "$plait"):$PATH sh -c "$advice" &&
        "$plait" $command --model 7b.yaml >out
    check "... and what is advised works" $?
done

"$plait" plan --auto --model model.yaml --gpus 64 >out &&
    grep -Eq '^it needs at least [0-9]+ h100 GPUs? with offloading, [0-9]+ without$' out
check "--auto says which numbers of GPUs need offloading" $?
grep -q ' memory     free ' out && awk '/ GB .* GB / {
        for (i = sum = n = 0; i < NF; i++)
            if ($(i + 1) == "GB") { sum += $i; n++ }
        all = all ? all : sum
        if (n != 2 || sum - all > 0.2 || all - sum > 0.2) exit 1
    }
    END { exit all < 70 }' out
check "and what each layout leaves free" $?
few=$(sed -n 's/^it needs at least \([0-9]*\) .* \([0-9]*\) without$/\1 \2/p' out)
set -- $few
"$plait" plan --auto --model model.yaml --gpus "$1" >out &&
    ! grep -E '^ +[0-9]' out | grep -vq 'optimizer\|activations\|both\|layer'
check "the smaller number has only layouts that offload" $?
"$plait" plan --auto --model model.yaml --gpus "$2" >out &&
    grep -E '^ +[0-9]' out | grep -q ' none  *[0-9.]* GB'
check "the larger one has one that does not" $?

cat >old.yaml <<'END'
model: {family: llama, layers: 32, hidden: 4096, heads: 32, kv_heads: 8,
        ffn: 14336, vocab: 128256, seq_len: 2048}
train: {global_batch: 64, micro_batch: 1}
END
"$plait" estimate --model old.yaml --framework megatron-2021 --gpus 8 \
    --gpu-type a100-80g >out
sed -n 's/^the smallest change that fits: //p' out >change
test -s change && ! grep -q 'zero=[23]' change
check "no change to a ZeRO stage that the software does not have" $?
! "$plait" estimate --model old.yaml --framework megatron --gpus 8 \
    --gpu-type a100-80g --set train.precision=bf16 --set optim.masters=bf16 \
    >out 2>err &&
    grep -q 'optim.masters bf16 is for --framework plait, not megatron' err
check "nor weights without masters" $?
echo "1..$n"
