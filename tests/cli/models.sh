#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Models as others write them: Hugging Face's config.json and Megatron's
# arguments, in every command that takes --model.
plait=$top_builddir/plait
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C PLAIT_SITE=
. "$top_srcdir/tests/lib/check.sh"
cd "$tmp" || exit 1

# parameters FILE COUNT OPTION...
parameters() {
    local file=$1 count=$2
    shift 2
    "$plait" estimate --model "$file" --gpus 8 "$@" --json >json 2>err &&
        grep -q "\"parameters\": $count," json
    check "$file: $count parameters$(cat err)" $?
}
# refused TEXT OPTION...
refused() {
    local text=$1
    shift
    ! "$plait" estimate "$@" >out 2>err && [ "$(cat err)" = "plait: $text" ]
    check "$text" $?
}

# Of the models' own pages; the numbers are those of their weights.
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
parameters llama.json 8030261248
parameters qwen.json 30532122624
parameters gpt2.json 124439808
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
--sequence-parallel --use-distributed-optimizer --bf16
END
parameters megatron.args 8030261248
"$plait" estimate --model llama.json --gpus 8 --framework megatron --tp 2 \
    --sequence --zero 1 --micro-batch 1 --global-batch 128 --json >other
cmp json other
check 'the same model, layout and software' $?
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

echo '{"model_type": "deepseek_v3", "hidden_size": 7168}' >mla.json
refused 'mla.json: model_type deepseek_v3 cannot be planned: its layers are not those of gpt2 or llama' \
    --model mla.json
: >empty.yaml
refused 'empty.yaml: there is no model in it' --model empty.yaml
echo "1..$n"
