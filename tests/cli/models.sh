#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Models in the formats of others, Hugging Face's config.json and Megatron's
# arguments, in every command that takes --model.
plait=$top_builddir/plait
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C PLAIT_SITE=
. "$top_srcdir/tests/lib/check.sh"
cd "$tmp" || exit 1

# parameters FILE COUNT OPTION...: whether plait estimate counts so many
parameters() {
    local file=$1 count=$2
    shift 2
    "$plait" estimate --model "$file" --gpus 8 "$@" --json >json 2>err &&
        grep -q "\"parameters\": $count," json
    rc=$?
    check "$file: $count parameters$(cat err)" $rc
}
# refused TEXT OPTION...: whether plait estimate fails with just this line
refused() {
    local text=$1
    shift
    ! "$plait" estimate "$@" >out 2>err && [ "$(cat err)" = "plait: $text" ]
    check "$text" $?
}

# From the models' own pages; the counts are those of their weights.
cat >llama.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "attention_bias": false, "hidden_size": 4096, "intermediate_size": 14336,
 "max_position_embeddings": 131072, "num_attention_heads": 32,
 "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_scaling":
 {"factor": 8.0, "rope_type": "llama3"}, "tie_word_embeddings": false,
 "torch_dtype": "bfloat16", "vocab_size": 128256}
END
cat >qwen.json <<'END'
{"model_type": "qwen3_moe", "head_dim": 128, "hidden_size": 2048,
 "intermediate_size": 6144, "max_position_embeddings": 40960,
 "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128,
 "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
 "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 151936}
END
cat >gpt2.json <<'END'
{"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12,
 "n_positions": 1024, "vocab_size": 50257}
END
cat >deepseek.json <<'END'
{"model_type": "deepseek_v3", "first_k_dense_replace": 3, "hidden_size": 7168,
 "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings":
 163840, "moe_intermediate_size": 2048, "n_routed_experts": 256,
 "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
 "num_hidden_layers": 61, "num_key_value_heads": 128, "q_lora_rank": 1536,
 "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "tie_word_embeddings": false,
 "v_head_dim": 128, "vocab_size": 129280}
END
cat >oss-120b.json <<'END'
{"model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880,
 "intermediate_size": 2880, "max_position_embeddings": 131072,
 "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 36,
 "num_key_value_heads": 8, "num_local_experts": 128, "sliding_window": 128,
 "tie_word_embeddings": false, "vocab_size": 201088}
END
sed 's/"num_hidden_layers": 36/"num_hidden_layers": 24/
    s/"num_local_experts": 128/"num_local_experts": 32/' \
    oss-120b.json >oss-20b.json
sed 's/"hidden_size": 2048/"hidden_size": 4096/
    s/"moe_intermediate_size": 768/"moe_intermediate_size": 1536/
    s/"num_attention_heads": 32/"num_attention_heads": 64/
    s/"num_hidden_layers": 48/"num_hidden_layers": 94/' \
    qwen.json >qwen-235b.json
cat >mixtral.json <<'END'
{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
 "max_position_embeddings": 32768, "num_attention_heads": 32,
 "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
 "num_local_experts": 8, "sliding_window": null, "tie_word_embeddings": false,
 "vocab_size": 32000}
END
cat >gemma2.json <<'END'
{"model_type": "gemma2", "head_dim": 256, "hidden_size": 3584,
 "intermediate_size": 14336, "max_position_embeddings": 8192,
 "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
 "sliding_window": 4096, "vocab_size": 256000}
END
cat >gemma3.json <<'END'
{"model_type": "gemma3_text", "head_dim": 128, "hidden_size": 5376,
 "intermediate_size": 21504, "max_position_embeddings": 131072,
 "num_attention_heads": 32, "num_hidden_layers": 62,
 "num_key_value_heads": 16, "sliding_window": 1024, "sliding_window_pattern": 6,
 "vocab_size": 262208}
END
cat >llama4.json <<'END'
{"model_type": "llama4", "text_config": {"model_type": "llama4_text",
 "attention_bias": false, "attention_chunk_size": 8192, "head_dim": 128,
 "hidden_size": 5120, "interleave_moe_layer_step": 1, "intermediate_size": 8192,
 "intermediate_size_mlp": 16384, "max_position_embeddings": 10485760,
 "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48,
 "num_key_value_heads": 8, "num_local_experts": 16, "vocab_size": 202048},
 "vision_config": {"hidden_size": 1408, "num_hidden_layers": 34}}
END
cat >gemma3-4b.json <<'END'
{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
 "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
 "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type":
 "linear"}}, "vision_config": {"hidden_size": 1152}}
END
cat >phi4.json <<'END'
{"model_type": "phi3", "hidden_size": 5120, "intermediate_size": 17920,
 "max_position_embeddings": 16384, "num_attention_heads": 40,
 "num_hidden_layers": 40, "num_key_value_heads": 10, "sliding_window": null,
 "tie_word_embeddings": false, "vocab_size": 100352}
END
cat >olmo3.json <<'END'
{"model_type": "olmo3", "hidden_size": 4096, "intermediate_size": 11008,
 "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention",
 "full_attention", "sliding_attention", "sliding_attention",
 "sliding_attention", "full_attention"],
 "max_position_embeddings": 8192,
 "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
 "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 100278}
END
sed 's/olmo3/olmo2/; s/"sliding_window": 4096,//; /"layer_types"/,/\]/d' \
    olmo3.json >olmo2.json
cat >granite.json <<'END'
{"model_type": "granite", "attention_bias": false, "hidden_size": 4096,
 "embedding_multiplier": 12.0, "intermediate_size": 12800,
 "max_position_embeddings": 131072, "num_attention_heads": 32,
 "num_hidden_layers": 40, "num_key_value_heads": 8, "tie_word_embeddings": true,
 "vocab_size": 49155}
END
cat >glm45.json <<'END'
{"model_type": "glm4_moe", "attention_bias": true, "first_k_dense_replace": 3,
 "head_dim": 128, "hidden_size": 5120, "intermediate_size": 12288,
 "max_position_embeddings": 131072, "moe_intermediate_size": 1536,
 "n_routed_experts": 160, "n_shared_experts": 1, "num_attention_heads": 96,
 "num_experts_per_tok": 8, "num_hidden_layers": 92, "num_key_value_heads": 8,
 "partial_rotary_factor": 0.5, "tie_word_embeddings": false,
 "use_qk_norm": true, "vocab_size": 151552}
END
sed 's/deepseek_v3/kimi_k2/; s/dense_replace": 3/dense_replace": 1/
    s/n_routed_experts": 256/n_routed_experts": 384/
    s/attention_heads": 128/attention_heads": 64/
    s/key_value_heads": 128/key_value_heads": 64/
    s/vocab_size": 129280/vocab_size": 163840/' deepseek.json >kimi.json
cat >olmoe.json <<'END'
{"model_type": "olmoe", "attention_bias": false, "hidden_size": 2048,
 "intermediate_size": 1024, "max_position_embeddings": 4096,
 "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 64,
 "num_experts_per_tok": 8, "num_hidden_layers": 16, "num_key_value_heads": 16,
 "tie_word_embeddings": false, "vocab_size": 50304}
END
cat >minimax.json <<'END'
{"model_type": "minimax_m2", "head_dim": 128, "hidden_size": 3072,
 "intermediate_size": 1536, "max_position_embeddings": 196608,
 "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": 62,
 "num_key_value_heads": 8, "num_local_experts": 256, "rotary_dim": 64,
 "scoring_func": "sigmoid", "tie_word_embeddings": false, "vocab_size": 200064}
END
cat >flash.json <<'END'
{"model_type": "glm4_moe_lite", "hidden_size": 2048, "intermediate_size": 10240,
 "kv_lora_rank": 512, "max_position_embeddings": 202752,
 "moe_intermediate_size": 1536, "n_routed_experts": 64, "n_shared_experts": 1,
 "num_attention_heads": 20, "num_experts_per_tok": 4, "num_hidden_layers": 47,
 "num_key_value_heads": 20, "q_lora_rank": 768, "qk_nope_head_dim": 192,
 "qk_rope_head_dim": 64, "tie_word_embeddings": false, "v_head_dim": 256,
 "vocab_size": 154880}
END
cat >exaone.json <<'END'
{"model_type": "exaone4", "head_dim": 128, "hidden_size": 5120,
 "intermediate_size": 27392, "max_position_embeddings": 131072,
 "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8,
 "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 102400}
END
cat >seed.json <<'END'
{"model_type": "seed_oss", "attention_bias": true, "attention_out_bias": false,
 "head_dim": 128, "hidden_size": 5120, "intermediate_size": 27648,
 "max_position_embeddings": 524288, "mlp_bias": false,
 "num_attention_heads": 80, "num_hidden_layers": 64, "num_key_value_heads": 8,
 "tie_word_embeddings": false, "vocab_size": 155136}
END
# billions FILE ALL ACTIVE: compare with published counts, in billions; within
# half a percent for all parameters, and five for active ones, which others
# count without the embedding
billions() {
    "$plait" estimate --model "$1" --gpus 8 --json 2>err >json &&
        sed -n 's/^ *"\(active_\)\{0,1\}parameters": \([0-9]*\),/\2/p' json |
        awk -v all="$2" -v active="$3" 'NR == 1 { a = $1 / 1e9 / all - 1 }
            NR == 2 { b = $1 / 1e9 / active - 1 }
            END { exit !(NR == 2 && a * a < 25e-6 && b * b < 25e-4) }'
    rc=$?
    check "$1: $2 billion, $3 for a token$(cat err)" $rc
}
billions deepseek.json 671 37.5
billions qwen.json 30.5 3.3
mv json other
sed 's/"sliding_window": null/"first_k_dense_replace": 0/' qwen.json >first.json
"$plait" estimate --model first.json --gpus 8 --json >json 2>err &&
    cmp json other
check "no first layers, and so no width of them" $?
sed 's/"sliding_window": null/"first_k_dense_replace": 2/' qwen.json >first.json
"$plait" estimate --model first.json --set model.dense_layers=0 --gpus 8 \
    --json >json 2>err && cmp json other
check "... also where the command line says so" $?
billions qwen-235b.json 235 22
billions oss-120b.json 116.8 5.7
billions oss-20b.json 20.9 4.2
sed 's/"head_dim": 64, //; s/"num_key_value_heads": 8, //
    s/"sliding_window": 128,//' oss-120b.json >oss-short.json
billions oss-short.json 116.8 5.7
billions mixtral.json 46.7 12.9
billions gemma2.json 9.24 9.24
billions gemma3.json 27.0 27.0
billions llama4.json 107.8 17.2
billions gemma3-4b.json 3.88 3.88
billions phi4.json 14.66 14.66
billions olmo2.json 7.30 7.30
billions olmo3.json 7.30 7.30
billions granite.json 8.17 8.17
billions glm45.json 352.8 33
billions kimi.json 1026 32.6
billions olmoe.json 6.92 1.28
billions minimax.json 228.7 11.0
billions flash.json 29.94 3.9
billions exaone.json 32.0 32.0
billions seed.json 36.15 36.15
# Keys that are missing are what the type has.
for file in minimax flash seed exaone; do
    kv=$([ $file = exaone ] || echo "s/\"num_key_value_heads\": [0-9]*,//
        s/\"head_dim\": 128,//")
    "$plait" estimate --model $file.json --gpus 8 --json >other 2>err &&
        sed "$kv"'
            s/"\(kv\|q\)_lora_rank": [0-9]*,//g; s/"v_head_dim": [0-9]*,//
            s/"qk_[a-z]*_head_dim": [0-9]*,//; s/"attention_bias": true,//
            s/"sliding_window": 4096,//; s/"n_shared_experts": 1,//' \
            $file.json >short.json &&
        "$plait" estimate --model short.json --gpus 8 --json 2>err |
        cmp - other
    check "$file.json: the sizes of its type$(cat err)" $?
done
# parameters of a few layers, each of which is dense or sparse
sed 's/{/{"mlp_layer_types": ["dense", "dense", "sparse"], /
    s/layers": 47/layers": 3/' flash.json >types.json
"$plait" estimate --model types.json --gpus 8 --json >other &&
    sed 's/{/{"first_k_dense_replace": 2, /; s/layers": 47/layers": 3/' \
        flash.json >first.json &&
    "$plait" estimate --model first.json --gpus 8 --json | cmp - other &&
    sed -i 's/: 2, /: 1, /' first.json &&
    ! "$plait" estimate --model first.json --gpus 8 --json | cmp -s - other
check "mlp_layer_types says which layers are dense" $?
sed -i 's/"dense", "sparse"/"sparse", "dense"/' types.json
refused 'types.json: mlp_layer_types has dense layers between others, which cannot be planned' \
    --model types.json --gpus 8
sed 's/"mlp_bias": false/"mlp_bias": true/' seed.json >biased.json
parameters biased.json 36154971136
# With a layer of multi-token prediction, whose embedding and head are the
# model's: 256 + 1 experts of 3 x 7168 x 2048, latent attention, a router, and
# the join of 2 x 7168 x 7168.
for key in num_nextn_predict_layers num_mtp_layers; do
    sed "s/{/{\"$key\": 1, /" deepseek.json >deepseek-mtp.json
    billions deepseek-mtp.json 682.6 38.2
    sed -i "s/\"$key\": 1/\"$key\": 2/" deepseek-mtp.json
    billions deepseek-mtp.json 671 37.5
    grep -q 'more than one layer of multi-token prediction.* left out' json
    check "... as two layers are left out, in a note" $?
done
# A window in every layer but each fourth costs less than none in any.
"$plait" estimate --model olmo3.json --gpus 8 --json >json &&
    "$plait" estimate --model olmo2.json --gpus 8 --json >other &&
    ! cmp -s json other &&
    sed '/"layer_types"/,/\]/d' olmo3.json >olmo3-short.json &&
    "$plait" estimate --model olmo3-short.json --gpus 8 --json | cmp - json
check 'layer_types says where the window is, as does the type' $?
# null SED SETTING...: whether a gemma2 changed so is planned as with these
# settings, and not as without
null() {
    sed "$1" gemma2.json >null.json
    "$plait" estimate --model null.json --gpus 8 --json >json &&
        "$plait" estimate --model gemma2.json --gpus 8 "${@:2}" --json >other &&
        cmp json other && "$plait" estimate --model gemma2.json --gpus 8 \
        --json >other && ! cmp -s json other
    check "gemma2: $*" $?
}
null 's/"vocab/"attn_logit_softcapping": null, &/' \
    --set model.attention_softcap=0
null 's/"sliding_window": 4096/"sliding_window": null/' \
    --set model.sliding_window=8192
# Llama 4 Maverick.
sed 's/layer_step": 1/layer_step": 2/; s/experts": 16/experts": 128/' \
    llama4.json >maverick.json
billions maverick.json 400.7 17.2
list=$(seq -s ', ' 1 2 47)
sed "s/\"interleave_moe_layer_step\": 2/\"moe_layers\": [$list]/" \
    maverick.json >listed.json
billions listed.json 400.7 17.2
# four JSON SETTING...: whether Maverick with these keys in its text_config is
# planned as with these settings
four() {
    local keys="$1"
    shift
    sed "s/\"interleave_moe_layer_step\": 2/$keys/" maverick.json >four.json
    "$plait" estimate --model four.json --gpus 8 --json >json 2>err &&
        "$plait" estimate --model maverick.json --gpus 8 "$@" --json >other &&
        cmp json other
    check "llama4: ${keys:0:50}: $*$(cat err)" $?
}
# four_refused JSON KEY TEXT: whether it is not, with this reason
four_refused() {
    sed "s/\"interleave_moe_layer_step\": 2/$1/" maverick.json >four.json
    refused "four.json: $2: only $3" --model four.json --gpus 8
}
sparse='moe_layers or interleave_moe_layer_step'
experts='experts in every Nth layer, or in all layers after the first ones, can be planned'
rotary='every Nth layer can be planned without rotary positions'
types='chunked_attention in the layers with rotary positions and full_attention in the others can be planned'
every='"interleave_moe_layer_step": 2'
# repeat TEXT N: so many of a list
repeat() {
    printf "$1, %.0s" $(seq "$2") | sed 's/, $//'
}
four '"moe_layers": []' --set model.experts_every=1 \
    --set model.dense_layers=48
four '"interleave_moe_layer_step": 49' --set model.experts_every=1 \
    --set model.dense_layers=48
four '"moe_layers": [29]' --set model.experts_every=30
four "\"moe_layers\": [$(seq -s ', ' 5 47)]" --set model.experts_every=1 \
    --set model.dense_layers=5
four "\"num_hidden_layers\": 96, \"moe_layers\": [$(seq -s ', ' 0 95)]" \
    --set model.experts_every=1 --set model.layers=96 \
    --set model.dense_ffn=0
four_refused '"moe_layers": [1, 2, 5]' "$sparse" "$experts"
four_refused '"moe_layers": [5, 6]' "$sparse" "$experts"
four_refused "\"moe_layers\": [$(seq -s ', ' 5 48)]" "$sparse" "$experts"
# short chunks: an estimate shows which layers have them
sed -i 's/"attention_chunk_size": 8192/"attention_chunk_size": 1024/' \
    maverick.json
four "$every, \"no_rope_layers\": [$(repeat 1 48)]" --set model.no_rope_every=0
four "$every, \"no_rope_layers\": [$(repeat '1, 0' 24)]" \
    --set model.no_rope_every=2
four "$every, \"no_rope_layers\": []" --set model.no_rope_every=4
four_refused "$every, \"no_rope_layers\": [1, 0, $(repeat 1 46)]" \
    'no_rope_layers or no_rope_layer_interval' "$rotary"
four_refused "$every, \"no_rope_layers\": [1, 0]" \
    'no_rope_layers or no_rope_layer_interval' "$rotary"
four "$every, \"layer_types\": [$(repeat '"full_attention"' 48)]" \
    --set model.attention_chunk=0
four "$every, \"layer_types\": [$(repeat '"chunked_attention", "chunked_attention", "chunked_attention", "full_attention"' 12)]" \
    --set model.attention_chunk=1024
four_refused "$every, \"layer_types\": [$(repeat '"chunked_attention"' 48)]" \
    'layer_types' "$types"
sed 's/"text_config"/"text"/' maverick.json >some.json
refused 'some.json: text_config is missing' --model some.json --gpus 8
sed 's/"vocab_size"/"mlp_only_layers": [3], "vocab_size"/' qwen.json >some.json
refused 'some.json: mlp_only_layers is [3]: layers without experts between others cannot be planned' \
    --model some.json --gpus 8
"$plait" estimate --model deepseek.json --gpus 8 --set train.precision=fp8 >out
grep -q 'megatron trains it: model.mla with train.precision fp8: plait-train' out
check 'what plait-train refuses is planned as Megatron trains it' $?
"$plait" simulate --model deepseek.json --gpus 256 --gpu-type gb200 --pp 4 \
    --ep 64 --global-batch 4096 --micro-batch 1 --zero 1 >out &&
    "$plait" plan --auto --model deepseek.json --gpus 256 --gpu-type gb200 \
        --global-batch 2048 >out
check 'simulate and plan --auto take latent attention' $?
parameters llama.json 8030261248
parameters qwen.json 30532122624
parameters gpt2.json 124439808
parameters deepseek.json 671026419200
"$plait" estimate --model llama.json --gpus 8 --json >json
"$plait" estimate --model llama.json --gpus 8 --set model.seq_len=8192 \
    --json >other
cmp json other
check 'a context of 131072 is not what it is trained with: 8192' $?
"$plait" plan --auto --model llama.json --gpus 16 --global-batch 32 >out
check 'plan --auto takes it' $?
"$plait" simulate --model llama.json --gpus 8 --pp 2 --micro-batch 1 \
    --zero 1 >out
check 'simulate takes it' $?

cat >megatron.args <<'END'
--num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
--group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu \
--untie-embeddings-and-output-weights --vocab-size 128256 --seq-length=8192 \
--micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 2 \
--overlap-grad-reduce --overlap-param-gather --tp-comm-overlap \
--sequence-parallel --use-distributed-optimizer --bf16
END
parameters megatron.args 8030261248
"$plait" estimate --model llama.json --gpus 8 --framework megatron --tp 2 \
    --sequence --zero 1 --micro-batch 1 --global-batch 128 --json >other
cmp json other
check 'the same model, layout and software' $?
# The join, two norms of what it takes, the layer and the last norm.
sed '1s/^/--mtp-num-layers 1 /' megatron.args >megatron-mtp.args
parameters megatron-mtp.args \
    $((8030261248 + 2 * 4096 * 4096 + 2 * 4096 + 218112000 + 4096))
# An mlp without a gate has shared experts without one.
cat >shared.args <<'END'
--num-layers 2 --hidden-size 64 --num-attention-heads 4 \
--ffn-hidden-size 256 --num-experts 4 --moe-router-topk 2 \
--vocab-size 1000 --seq-length=128 --max-position-embeddings 128 \
--micro-batch-size 1 --global-batch-size 128 --bf16
END
parameters shared.args 371328
sed 's/topk 2/& --moe-shared-expert-intermediate-size 512/' shared.args >more.args
parameters more.args $((371328 + 2 * 2 * 64 * 512))
# glibc fills new memory with '7': the last number must not go on with it.
export MALLOC_PERTURB_=200
printf '%s' "$(sed '/batch/d; $d' megatron.args) --global-batch-size 128" \
    >cut.args
{ cat cut.args; echo; } >whole.args
"$plait" estimate --model whole.args --gpus 8 --json >json 2>err &&
    "$plait" estimate --model cut.args --gpus 8 --json 2>err | cmp - json
check "a file that ends in a number, without a newline" $?
unset MALLOC_PERTURB_
# What plan --auto pastes, with the model's arguments, is what it predicted:
# overlap is off in Megatron unless it is asked for.
"$plait" plan --auto --model llama.json --framework megatron --gpus 8 --tp 2 \
    --pp 1 --global-batch 128 >out
{
    sed '/^--micro/,$d' megatron.args
    echo '--bf16 \'
    sed -n '/^--tensor/,$p' out
} >pasted.args
layout=$(awk '$1 == "tp" { on = 1; next } on && NF > 6 {
    print "--zero", $6, "--micro-batch", $7, "--recompute", $8; exit }' out)
"$plait" estimate --model llama.json --gpus 8 --framework megatron --tp 2 \
    --sequence --global-batch 128 $layout --json >json &&
    "$plait" estimate --model pasted.args --gpus 8 --json >other && cmp json other
check "the arguments of plan --auto mean what was predicted ($layout)" $?
cat >megatron.yaml <<'END'
num_layers: 32
hidden_size: 4096
num_attention_heads: 32
num_query_groups: 8
ffn_hidden_size: 14336
swiglu: true
untie_embeddings_and_output_weights: true
vocab_size: 128256
seq_length: 8192
END
parameters megatron.yaml 8030261248
sed 's/--tensor-model-parallel-size 2/--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1/' \
    megatron.args >chunks.args
printf '%s --no-overlap-p2p-communication\n' "$(cat chunks.args)" >p2p.args
"$plait" estimate --model chunks.args --gpus 64 --gpu-type h100 --json >json &&
    "$plait" estimate --model p2p.args --gpus 64 --gpu-type h100 --json >other &&
    python3 - json other <<'END'
import json, sys

hidden, waited = (json.load(open(f))["step_s"] for f in sys.argv[1:])
sys.exit(not hidden < waited < 1.1 * hidden)
END
check 'messages between chunks that nothing hides take time' $?
cat >>megatron.yaml <<'END'
pipeline_model_parallel_size: 4
use_distributed_optimizer: true
END
"$plait" estimate --model megatron.yaml --gpus 8 --json >plain
same() { # TEXT YAML: whether these lines change nothing
    { cat megatron.yaml; printf '%b' "$2"; } >other.yaml
    "$plait" estimate --model other.yaml --gpus 8 --json | cmp - plain
    check "$1" $?
}
same 'a flag that is false is not set' 'fp16: false\nfp8: False\n
use_megatron_fsdp: 0\noverlap_moe_expert_parallel_comm: false\n'
same '... nor one that is None' 'fp8_format: None\n'
for key in swiglu untie_embeddings_and_output_weights \
    use_distributed_optimizer; do
    grep -v "query_groups" megatron.yaml >yes.yaml
    sed "s/^$key: .*/$key: false/" yes.yaml >no.yaml
    grep -v "^$key:" yes.yaml >without.yaml
    "$plait" estimate --model without.yaml --gpus 8 --json >json &&
        ! "$plait" estimate --model yes.yaml --gpus 8 --json | cmp -s - json &&
        "$plait" estimate --model no.yaml --gpus 8 --json | cmp - json
    check "... nor $key: false" $?
done
echo 'num_layers_per_virtual_pipeline_stage: 2' >>megatron.yaml
"$plait" estimate --model megatron.yaml --gpus 8 --json >json &&
    ! cmp -s json plain &&
    sed 's/^num_layers_per.*/num_virtual_stages_per_pipeline_rank: 4/' \
        megatron.yaml >virtual.yaml &&
    "$plait" estimate --model virtual.yaml --gpus 8 --json | cmp - json
check '2 layers a chunk of 32 in 4 stages are 4 chunks' $?

# A document of YAML may begin with ---, which is no argument.
"$plait" init --model tiny --gpus 8 --gpu-type h100 >plain.yaml &&
    { echo ---; cat plain.yaml; } >marked.yaml &&
    "$plait" estimate --model plain.yaml --gpus 8 --json >json &&
    "$plait" estimate --model marked.yaml --gpus 8 --json | cmp - json
check "a file of Plait's that begins with ---" $?
sed 's/--num-layers/--num-layer/' megatron.args >misspelt.args
refused 'misspelt.args: does not say num-layers' --model misspelt.args --gpus 8

# modules TEXT: recomputes these modules in yes.yaml
modules() { printf '%s\n' 'recompute_granularity: selective' \
    "recompute_modules: $1" | cat megatron.yaml - >yes.yaml; }
modules 'core_attn layernorm mla_up_proj shared_experts moe_act'
"$plait" estimate --model yes.yaml --gpus 8 --json >json && ! cmp -s json plain &&
    modules '[core_attn, layernorm, mla_up_proj, shared_experts, moe_act]' &&
    "$plait" estimate --model yes.yaml --gpus 8 --json | cmp - json
check "modules to recompute, a list and its words on one line" $?

for key in recompute_activations recompute_granularity; do
    value=$([ $key = recompute_activations ] && echo true || echo selective)
    { cat megatron.yaml; echo "$key: $value"; } >other.yaml
    "$plait" estimate --model other.yaml --gpus 8 --json >$key.json
done
! cmp -s recompute_activations.json json &&
    cmp recompute_activations.json recompute_granularity.json
check 'recompute_activations is selective recompute' $?

# window LAYERS SETTING...: the estimate of a Qwen of that many layers
window() {
    echo "{\"model_type\": \"qwen2\", \"hidden_size\": 1536,
        \"intermediate_size\": 8960, \"max_position_embeddings\": 8192,
        \"num_attention_heads\": 12, \"num_key_value_heads\": 2,
        \"num_hidden_layers\": $1, \"vocab_size\": 151936${*:2}}" >qwen2.json
    "$plait" estimate --model qwen2.json --gpus 8 --json
}
asked=', "sliding_window": 512, "use_sliding_window": true'
window 28 >plain && window 28 "$asked" | cmp - plain &&
    window 28 "$asked" ', "max_window_layers": 28' | cmp - plain &&
    window 28 "$asked" ', "max_window_layers": 0' >json &&
    ! cmp -s json plain && window 30 "$asked" >json &&
    window 30 >plain && ! cmp -s json plain
check 'a window that begins behind the last layer is none' $?

echo '{"model_type": "mamba", "hidden_size": 7168}' >mla.json
refused 'mla.json: model_type mamba is not known, so that its layers cannot be planned; known are gpt2, llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, llama4_text, gpt_oss, gemma, gemma2, gemma3_text, phi3, smollm3, olmo2, olmo3, olmoe, exaone4, seed_oss, minimax_m2, granite, glm4_moe, deepseek_v2, deepseek_v3, kimi_k2, glm4_moe_lite' \
    --model mla.json
sed 's/num_hidden_layers/num_hidden_layer/' llama.json >slip.json
refused 'slip.json: does not say num_hidden_layers (n_layer)' --model slip.json
sed 's/^num_layers_per.*/num_layers_per_virtual_pipeline_stage: 3/' \
    megatron.yaml >three.yaml
refused 'three.yaml: 32 layers in 4 stages are not divisible by num_layers_per_virtual_pipeline_stage 3' \
    --model three.yaml
: >empty.yaml
refused 'empty.yaml: it contains no model' --model empty.yaml
echo "1..$n"
