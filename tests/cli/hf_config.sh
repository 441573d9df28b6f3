#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What plait-convert makes of the keys of a config.json: rotary positions from
# every place, keys that are missing, keys that nothing here knows, a head that
# is not the embedding, dropout. The right values are those of transformers
# 5.24's classes.
set -u
convert=$top_builddir/plait-convert
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"

hf() { python3 "$top_srcdir/tests/lib/hf.py" "$@"; }
# change DIR JSON: sets these keys of its config.json; "gone": removes one
change() {
    python3 - "$1/config.json" "$2" <<'END'
import json, sys
path, more = sys.argv[1], json.loads(sys.argv[2])
made = {**json.load(open(path)), **more}
json.dump({k: v for k, v in made.items() if v != "gone"}, open(path, "w"))
END
}
# read_as KIND JSON: convert that model with these keys; output in $dir/out
read_as() {
    rm -rf "$dir/x" "$dir/x.plait"
    cp -r "$dir/$1" "$dir/x" && change "$dir/x" "$2" &&
        "$convert" --from "$dir/x" --to "$dir/x.plait" >"$dir/out" 2>&1
}
# gives KIND JSON "KEY: VALUE"...: this is in its plait.yaml
gives() {
    local kind=$1 json=$2 line
    shift 2
    read_as "$kind" "$json" || { sed 's/^/# /' "$dir/out"; return 1; }
    for line; do
        tr ',{}' '\n' <"$dir/x.plait/latest/plait.yaml" |
            grep -q "^ *$line *$" || return 1
    done
}
# refuses KIND JSON TEXT: in one line that has this text
refuses() {
    ! read_as "$1" "$2" && [ "$(wc -l <"$dir/out")" = 1 ] &&
        grep -qF -- "$3" "$dir/out"
    local rc=$?
    [ $rc = 0 ] || sed 's/^/# /' "$dir/out"
    return $rc
}
for kind in gpt2 llama llama-tied mistral mixtral qwen2 qwen3 qwen3_moe \
    qwen3_moe-first granite phi3 phi3-88 phi3-long \
    smollm3 gemma gemma2 gemma3_text gpt_oss olmo2 olmo3 glm4_moe \
    glm4_moe-mtp glm4_moe-two deepseek_v2 deepseek_v3 deepseek_v3-5 kimi_k2 \
    llama4_text llama4_text-first llama4_text-third llama4_text-last \
    glm4_moe_lite olmoe minimax_m2 exaone4 seed_oss \
    seed_oss-out; do
    hf make "$dir/$kind" $kind || exit 1
done

# -- rotary positions --------------------------------------------------------
theta() { # JSON VALUE
    ok "$1: rope_theta $2" gives llama "$1" "rope_theta: $2"
}
theta '{"rope_parameters": {"rope_type": "default"}}' 500000
theta '{"rope_parameters": {}}' 500000
theta '{"rope_parameters": null}' 500000
theta '{"rope_theta": "gone"}' 10000
theta '{"rope_theta": "gone", "rope_parameters": {"rope_theta": 7.0}}' 7
theta '{"rope_parameters": {"rope_theta": 7.0}}' 7
theta '{"rope_scaling": {"type": "default"}, "rope_parameters": {"rope_theta": 7.0}}' 500000
theta '{"rope_scaling": {}, "rope_parameters": {"rope_theta": 7.0}}' 7
theta '{"rope_scaling": {"rope_theta": 9.0}}' 9
theta '{"rope_scaling": {"rope_type": "default", "factor": 3.0}}' 500000
theta '{"partial_rotary_factor": 1.0}' 500000
theta '{"rope_parameters": {"partial_rotary_factor": 1}}' 500000
ok "mixtral has another default" gives mixtral '{"rope_theta": "gone"}' \
    "rope_theta: 1e+06"
llama3='"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0'
ok "llama3 in rope_parameters, of the length that is missing" gives llama \
    "{\"rope_parameters\": {$llama3}}" "rope_original_len: 32" "rope_factor: 8" \
    "rope_theta: 500000"
ok "and of one that is given" gives llama "{\"rope_scaling\": {$llama3,
    \"original_max_position_embeddings\": 24}}" "rope_original_len: 24"
ok "a rope_theta of null" refuses llama '{"rope_theta": null}' \
    "rope_theta is null; it must be a number above 0"
ok "... inside" refuses llama '{"rope_parameters": {"rope_theta": null}}' \
    "rope_theta is null"
ok "a rope_type of null" refuses llama \
    '{"rope_scaling": {"rope_type": null, "type": "default"}}' "rope_type is null"
ok "another type" refuses llama '{"rope_parameters": {"type": "dynamic"}}' \
    'rope_type is "dynamic"; plait-train supports "default", "linear"'
ok "longrope without a length" refuses llama '{"rope_parameters": {"type":
    "longrope"}}' "original_max_position_embeddings is missing; longrope needs it"
ok "longrope of all columns" gives llama '{"rope_parameters": {"rope_type":
    "longrope", "factor": 8, "original_max_position_embeddings": 8,
    "short_factor": [1, 2], "long_factor": [3, 4.5]}}' "rope_factor: 8" \
    "rope_original_len: 8"
ok "... and its numbers" grep -qF "rope_short: [1, 2]" "$dir/x.plait/latest/plait.yaml"
ok "... of some" gives phi3-long '{}' "rope_scaling: longrope" "rope_factor: 4" \
    "rope_original_len: 8" "rope_long: \[2.5\]" "rope_attention_factor: 0"
ok "... by its old name" gives phi3-long '{"rope_scaling": {"type": "yarn",
    "short_factor": [1], "long_factor": [2], "attention_factor": 1.5}}' \
    "rope_scaling: longrope" "rope_attention_factor: 1.5"
ok "... of a length that a phi3 has" gives phi3-long \
    '{"original_max_position_embeddings": null, "max_position_embeddings": 8192}' \
    "rope_original_len: 4096" "rope_factor: 2"
ok "... too few numbers" refuses phi3-long '{"rope_scaling": {"type":
    "longrope", "short_factor": [1], "long_factor": []}}' \
    "long_factor is []; it must be a list of a number for each pair"
ok "... a number of 0" refuses phi3-long '{"rope_scaling": {"type": "longrope",
    "short_factor": [0], "long_factor": [1]}}' "short_factor is 0; its numbers"
ok "... that stretches nothing" refuses phi3-long '{"max_position_embeddings":
    8}' "factor is missing; it, or max_position_embeddings over"
ok "a phi3 has no other type" refuses phi3 '{"rope_scaling": {"type": "linear",
    "factor": 2}}' 'a phi3 has "default" or "longrope"'
ok "YaRN, with the defaults of transformers" gives llama \
    '{"rope_scaling": {"type": "yarn", "factor": 8.0, "beta_fast": null}}' \
    "rope_scaling: yarn" "rope_factor: 8" "rope_low_freq_factor: 1" \
    "rope_high_freq_factor: 32" "rope_original_len: 32" "rope_truncate: true" \
    "rope_attention_factor: 0"
ok "YaRN that says all" gives llama '{"rope_parameters": {"rope_type": "yarn",
    "factor": 4, "beta_fast": 16, "beta_slow": 2.0, "truncate": false,
    "attention_factor": 1.25, "original_max_position_embeddings": 24}}' \
    "rope_low_freq_factor: 2" "rope_high_freq_factor: 16" \
    "rope_original_len: 24" "rope_truncate: false" "rope_attention_factor: 1.25"
ok "YaRN by two magnitudes, which cancel" gives llama '{"rope_scaling":
    {"rope_type": "yarn", "factor": 40, "mscale": 0.5, "mscale_all_dim": 0.5}}' \
    "rope_attention_factor: 1"
ok "YaRN by a factor of 1 is none" gives llama '{"rope_scaling":
    {"rope_type": "yarn", "factor": 1.0, "attention_factor": 1.0}}' \
    "rope_factor: 1" "rope_scaling: llama3" "rope_truncate: false"
ok "YaRN without a factor" refuses llama '{"rope_scaling": {"rope_type": "yarn"}}' \
    "factor is missing"
ok "all positions by one factor" gives llama '{"rope_scaling": {"type": "linear",
    "factor": 4.0}}' "rope_factor: 4" "rope_original_len: 1"
ok "phi3: some columns of a head" gives phi3 '{"partial_rotary_factor": 0.5}' \
    "rope_columns: 2"
ok "phi3: no pair of columns" refuses phi3 '{"partial_rotary_factor": 0.4}' \
    "it must give an even number of columns, from 2 to head_dim"
for json in '{"partial_rotary_factor": 0.5}' \
    '{"rope_parameters": {"partial_rotary_factor": 0.5}}' \
    '{"partial_rotary_factor": 1.0, "rope_scaling": {"partial_rotary_factor": 0.5}}'; do
    ok "$json" refuses llama "$json" "partial_rotary_factor is 0.5"
done
ok "a part of each layer type" refuses qwen3 \
    '{"rope_parameters": {"full_attention": {"rope_theta": 3.0}}}' \
    "rope_parameters.full_attention is {"
for scaling in '"type": "linear", "factor": 0.5' \
    "${llama3/8.0/0.5}"; do
    ok "positions pressed together: $scaling" refuses llama \
        "{\"rope_scaling\": {$scaling}}" "factor is 0.5; it must be at least 1"
done
ok "several axes" refuses llama '{"rope_scaling": {"mrope_section": [2, 1]}}' \
    "rope_scaling.mrope_section is [2, 1]"

# -- numbers that no plait.yaml may have -------------------------------------
# range KEYS TEXT: the message names the file that the user has, not ours
range() {
    ok "$1" refuses llama "$1" "/x/config.json: $2"
}
range '{"rope_theta": 1e300}' "rope_theta must be a number from 1"
range '{"rms_norm_eps": 2.0}' "norm_eps must be a number from 1e-12"
range "{\"rope_scaling\": {$llama3, \"original_max_position_embeddings\": 0.5}}" \
    "rope_original_len must be a whole number from 1"

# -- keys that are missing, which is not null --------------------------------
ok "llama: as many heads of k as of q" refuses llama \
    '{"num_key_value_heads": null, "head_dim": null}' "must be [24, 24]"
refuses llama '{"num_key_value_heads": "gone"}' "is [12, 24]" >/dev/null
ok "llama: also where it is missing" grep -q "is \[12, 24\]" "$dir/out"
ok "mistral: 8" refuses mistral '{"num_key_value_heads": "gone"}' "kv_heads 8"
ok "qwen3: 32" refuses qwen3 '{"num_key_value_heads": "gone"}' "kv_heads 32"
ok "qwen3: head_dim 128" refuses qwen3 '{"head_dim": "gone"}' "must be [768, 24]"
ok "mistral: a window of 4096" gives mistral '{"sliding_window": "gone"}' \
    "sliding_window: 4096" "seq_len: 32"
ok "mistral: none" gives mistral '{"sliding_window": null}' "sliding_window: 0"
window='"use_sliding_window": true, "sliding_window": 20'
ok "qwen2: layer_types says that no layer has it" gives qwen2 "{$window,
    \"max_window_layers\": 0, \"layer_types\": [\"full_attention\", \"full_attention\"]}" \
    "sliding_window: 0" "seq_len: 32"
ok "... or that one has" gives qwen2 "{$window, \"max_window_layers\": 9,
    \"layer_types\": [\"full_attention\", \"sliding_attention\"]}" \
    "sliding_window: 20" "seq_len: 32" "full_attention_first: 1"
ok "... or all but the first" gives qwen2 "{$window, \"max_window_layers\": 1}" \
    "sliding_window: 20" "full_attention_first: 1" "full_attention_every: 0"
pair='"full_attention", "sliding_attention"'
ok "... not the first of every two" refuses qwen2 "{$window, \"num_hidden_layers\": 6,
    \"layer_types\": [$pair, $pair, $pair]}" \
    "plait-train has full attention in the first layers and in the last of every"
ok "... but not what it does not know" refuses qwen2 "{$window,
    \"layer_types\": [\"full_attention\", \"linear_attention\"]}" \
    'layer_types is "linear_attention"'

# -- keys that it does not know ----------------------------------------------
ok "a key that may change the model" refuses llama '{"logit_scale": 0.5}' \
    "logit_scale is 0.5; plait-train does not know this key of a llama model"
ok "of another type" refuses llama '{"n_inner": 7}' "n_inner is 7"
ok "null says nothing" gives llama '{"logit_scale": null}' "heads: 6"
ok "experts of a llama" refuses llama '{"num_local_experts": 4}' \
    "num_local_experts is 4"
ok "a window of a llama" refuses llama '{"sliding_window": 4}' \
    "sliding_window is 4"
ok "rows of pairs" refuses llama '{"rope_interleaved": true}' "rope_interleaved"
ok "qwen3_moe: weights that add up to 1" gives qwen3_moe '{}' \
    "experts_weights: shares"
ok "... or, as the class has it, do not" gives qwen3_moe \
    '{"norm_topk_prob": "gone"}' "experts_weights: scores"
ok "... which is no number" refuses qwen3_moe '{"norm_topk_prob": 1}' \
    "norm_topk_prob is 1; it must be true or false"
ok "qwen3_moe: first layers without experts" gives qwen3_moe-first \
    '{}' "dense_layers: 1" "dense_ffn: 42" "ffn: 18"
ok "qwen3_moe: layers between without experts" refuses qwen3_moe \
    '{"mlp_only_layers": [1]}' "mlp_only_layers is [1]"
ok "qwen3_moe: as transformers 5 writes it" gives qwen3_moe \
    '{"num_experts": "gone", "num_local_experts": 4}' "experts: 4" "ffn: 18"
ok "granite: its constants" gives granite '{}' "embedding_multiplier: 12" \
    "attention_multiplier: 0.25" "residual_multiplier: 0.22" "logits_scaling: 8"
ok "granite: attention's is 1 where it is missing" gives granite \
    '{"attention_multiplier": "gone", "logits_scaling": "gone"}' \
    "attention_multiplier: 1" "logits_scaling: 1"
ok "granite: a constant of null" refuses granite '{"logits_scaling": null}' \
    "logits_scaling is null; it must be a number above 0"
ok "a llama has none" refuses llama '{"logits_scaling": 8.0}' \
    "logits_scaling is 8.0; plait-train does not know this key of a llama model"
ok "gemma: GeGLU, norms of 1 + weight, sqrt(24) times the embedding" gives \
    gemma '{}' "gate: gelu" "norm_plus_one: true" "norm_place: before" \
    "embedding_multiplier: 4.898979485566[0-9]*" "attention_multiplier: 0" \
    "tie_embeddings: true"
ok "gemma: gelu is the tanh form" gives gemma '{"hidden_act": "gelu"}' \
    "gate: gelu"
ok "gemma: no other" refuses gemma '{"hidden_act": "silu"}' \
    'hidden_act is "silu"; plait-train supports only "gelu_pytorch_tanh"'
ok "gemma: causal alone" refuses gemma '{"use_bidirectional_attention": true}' \
    "use_bidirectional_attention is true"
ok "a llama has another gate" refuses llama \
    '{"hidden_act": "gelu_pytorch_tanh"}' 'plait-train supports only "silu"'
ok "gemma3_text: its layers and positions" gives gemma3_text '{}' \
    "norm_place: both" "qk_norm: true" "qk_norm_whole: false" \
    "full_attention_every: 3" "rope_theta: 1e+06" "rope_theta_window: 10000" \
    "attention_multiplier: 0.288675134594[0-9]*" "tie_embeddings: true"
ok "gemma3_text: every sixth layer" gives gemma3_text \
    '{"sliding_window_pattern": "gone"}' "full_attention_every: 6"
ok "gemma3_text: the head's own scale" gives gemma3_text \
    '{"query_pre_attn_scalar": 8}' "attention_multiplier: 0"
ok "gemma3_text: a cap of the logits" gives gemma3_text \
    '{"final_logit_softcapping": 30.0}' "logit_softcap: 30" \
    "attention_softcap: 0"
ok "gemma3_text: none of the scores" refuses gemma3_text \
    '{"attn_logit_softcapping": 50.0}' \
    "attn_logit_softcapping is 50.0; plait-train supports only null"
ok "gemma2: its layers and caps" gives gemma2 '{}' "norm_place: both" \
    "qk_norm: false" "full_attention_every: 2" "rope_theta: 500000" \
    "rope_theta_window: 0" "attention_multiplier: 0.288675134594[0-9]*" \
    "tie_embeddings: true" "attention_softcap: 40" "logit_softcap: 20"
ok "gemma2: the caps of a file that says nothing" gives gemma2 \
    '{"attn_logit_softcapping": "gone", "final_logit_softcapping": "gone"}' \
    "attention_softcap: 50" "logit_softcap: 30"
ok "gemma2: no caps" gives gemma2 \
    '{"attn_logit_softcapping": null, "final_logit_softcapping": null}' \
    "attention_softcap: 0" "logit_softcap: 0"
ok "gemma2: keys of its first files" gives gemma2 \
    '{"cache_implementation": "hybrid", "sliding_window_size": 20}' \
    "sliding_window: 20"
ok "gemma2: a cap is above 0" refuses gemma2 \
    '{"attn_logit_softcapping": 0}' \
    "attn_logit_softcapping is 0; it must be a number above 0"
ok "gemma has no caps" refuses gemma '{"final_logit_softcapping": 30.0}' \
    "final_logit_softcapping is 30.0; plait-train does not know this key of a gemma model"
ok "olmo2: its norms" gives olmo2 '{}' "norm_place: after" \
    "qk_norm_whole: true" "sliding_window: 0"
ok "olmo3: all but every fourth layer have a window" gives olmo3 '{}' \
    "sliding_window: 20" "full_attention_every: 4" "rope_theta: 500000" \
    "rope_theta_window: 0"
ok "olmo3: 4096 tokens where it is missing" gives olmo3 \
    '{"sliding_window": "gone", "rope_parameters": "gone"}' \
    "sliding_window: 4096" "rope_theta: 500000"
ok "olmo3: by a list" gives olmo3 \
    '{"layer_types": ["full_attention", "sliding_attention"]}' \
    "full_attention_every: 0" "full_attention_first: 1"
ok "olmo3: positions of the full layers alone are stretched" gives olmo3 \
    '{"rope_parameters": "gone", "rope_scaling": {"rope_type": "linear",
    "factor": 8.0, "rope_theta": 7.0}}' "rope_theta: 7" "rope_factor: 8" \
    "rope_theta_window: 500000"
ok "olmo3: YaRN" gives olmo3 '{"rope_parameters": "gone", "rope_scaling":
    {"rope_type": "yarn", "factor": 8.0}}' "rope_scaling: yarn" \
    "rope_theta_window: 500000"
# exports TRUNCATE: the model of before, with this rope_truncate
exports() {
    sed -i "s/rope_truncate: [a-z]*/rope_truncate: $1/" \
        "$dir/x.plait/latest/plait.yaml" && rm -rf "$dir/back" &&
        "$convert" --from "$dir/x.plait" --to "$dir/back" >"$dir/out" 2>&1
}
ok "... goes back" exports true
ok "... but not where its range is not rounded, as transformers always does" \
    eval '! exports false && grep -q "model.rope_truncate must be true" "$dir/out"'
ok "olmo3: YaRN, not rounded" refuses olmo3 '{"rope_parameters": "gone",
    "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "truncate": false}}' \
    "truncate is false; it must be true"
ok "olmo3: Llama 3's scaling beside YaRN by a factor of 1" gives olmo3 \
    "{\"rope_parameters\": {\"full_attention\": {$llama3, \"rope_theta\": 7.0},
    \"sliding_attention\": {\"rope_type\": \"yarn\", \"factor\": 1.0,
    \"rope_theta\": 7.0}}}" "rope_scaling: llama3" "rope_factor: 8" \
    "rope_truncate: false" "rope_high_freq_factor: 4"
ok "olmo3: pressed together" refuses olmo3 '{"rope_parameters": "gone",
    "rope_scaling": {"rope_type": "linear", "factor": 0.5}}' \
    "factor is 0.5; it must be at least 1"
ok "olmo3: versions of transformers differ" refuses olmo3 \
    '{"rope_parameters": "gone", "rope_theta": 7.0}' \
    "rope_theta is 7.0; versions of transformers differ"
ok "olmo3: but not in the default" gives olmo3 \
    '{"rope_parameters": "gone", "rope_theta": 500000.0}' \
    "rope_theta: 500000" "rope_theta_window: 0"
ok "olmo3: nor where no layer has a window" gives olmo3 \
    '{"rope_parameters": "gone", "rope_theta": 7.0, "sliding_window": null,
    "layer_types": ["full_attention", "full_attention"]}' "rope_theta: 7"
ok "gemma3_text: a theta of windows below 1" refuses gemma3_text \
    '{"rope_local_base_freq": 0.5}' "rope_theta_window must be 0 or a number"
ok "olmo3: one kind of positions" refuses olmo3 '{"rope_parameters":
    {"rope_theta": 7.0}}' "it must have an object full_attention"
ok "smollm3: every fourth layer has no positions" gives smollm3 '{}' \
    "no_rope_every: 4" "tie_embeddings: true" "rope_theta: 2e+06"
ok "smollm3: every second" gives smollm3 '{"no_rope_layer_interval": 2}' \
    "no_rope_every: 2"
ok "smollm3: by a list" gives smollm3 '{"no_rope_layers": [1, 0]}' \
    "no_rope_every: 2"
ok "smollm3: none" gives smollm3 '{"no_rope_layers": [1, 1, 0]}' \
    "no_rope_every: 0"
ok "smollm3: no other list" refuses smollm3 '{"no_rope_layers": [0, 1]}' \
    "no_rope_layers is [0, 1]; plait-train leaves out"
ok "a llama has no such list" refuses llama '{"no_rope_layers": [1, 0]}' \
    "no_rope_layers is [1, 0]"
ok "qwen3_moe: a window" refuses qwen3_moe \
    '{"use_sliding_window": true, "sliding_window": 20}' "sliding_window is 20"
ok "gpt_oss: sinks, biases, clamped gates, YaRN" gives gpt_oss '{}' \
    "attention_sinks: true" "mlp_bias: true" "gate: clamped" \
    "attention_bias: all" "rope_scaling: yarn" "rope_truncate: false" \
    "full_attention_every: 2" "sliding_window: 20" "experts: 4"
ok "gpt_oss: what transformers has for missing keys" gives gpt_oss \
    '{"rope_scaling": "gone", "rope_theta": "gone", "attention_bias": "gone",
    "layer_types": "gone", "sliding_window": "gone"}' \
    "rope_factor: 32" "rope_original_len: 4096" "rope_high_freq_factor: 32" \
    "rope_theta: 150000" "attention_bias: all" "full_attention_every: 2" \
    "sliding_window: 128"
ok "gpt_oss: positions that are not stretched" gives gpt_oss \
    '{"rope_scaling": {"rope_type": "default"}}' "rope_factor: 1"
ok "gpt_oss: nor by rope_parameters that are empty" gives gpt_oss \
    '{"rope_scaling": "gone", "rope_parameters": {}}' "rope_factor: 1" \
    "rope_scaling: llama3"
ok "gpt_oss: an empty rope_scaling is as one that is missing" gives gpt_oss \
    '{"rope_scaling": {}, "rope_parameters": null}' "rope_factor: 32" \
    "rope_scaling: yarn"
ok "gpt_oss: other limits" refuses gpt_oss '{"swiglu_limit": 5.0}' \
    "swiglu_limit is 5.0; plait-train supports only 7.0"
ok "gpt_oss: MXFP4" refuses gpt_oss \
    '{"quantization_config": {"quant_method": "mxfp4"}}' \
    "weights in MXFP4 are not read; let transformers write them in bf16"
ok "gpt_oss: other codes" refuses gpt_oss \
    '{"quantization_config": {"quant_method": "gptq"}}' \
    'plait-train supports only null'
ok "what says nothing of the model" gives llama '{"use_cache": true,
    "pretraining_tp": 1, "torch_dtype": "bfloat16", "architectures": ["X"],
    "is_llama_config": true, "rope_interleaved": false, "id2label": {"0": "a"},
    "initializer_range": 0.02, "transformers_version": "4.40.1"}' "heads: 6"
ok "keys of old versions, as in distilgpt2" gives gpt2 '{"_num_labels": 1,
    "output_past": true, "n_special": 0, "predict_special_tokens": true,
    "n_ctx": 32, "gradient_checkpointing": false}' "family: gpt2"
glm=glm4_moe
ok "glm4_moe" gives $glm '{}' "experts: 4" "experts_scores: sigmoid" \
    "experts_scale: 2.5" "experts_groups: 2" "experts_top_groups: 1" \
    "shared_experts: 2" "dense_layers: 1" "dense_ffn: 42" "ffn: 18" \
    "attention_bias: qkv" "qk_norm: true" "rope_columns: 4"
ok "... by the defaults of its keys" gives $glm '{"n_group": "gone",
    "topk_group": "gone", "routed_scaling_factor": "gone", "norm_topk_prob":
    "gone", "first_k_dense_replace": "gone", "partial_rotary_factor": "gone",
    "num_nextn_predict_layers": "gone"}' "experts_scale: 1" \
    "experts_groups: 0" "experts_top_groups: 0" "dense_layers: 1" \
    "rope_columns: 4"
ok "... all columns rotated" gives $glm '{"partial_rotary_factor": 1.0}' \
    "rope_columns: 0"
ok "... weights that do not add up to 1" gives $glm \
    '{"norm_topk_prob": false}' "experts_weights: scores"
ok "... groups that experts do not fill" refuses $glm '{"n_group": 3}' \
    "model.experts_groups 3 must be at most 64 and divide model.experts 4"
ok "... no such shared experts" refuses $glm '{"n_shared_experts": 0}' \
    "n_shared_experts is 0; it must be a whole number of at least 1"
ok "a qwen3_moe has none of these" refuses qwen3_moe '{"n_group": 2}' \
    "n_group is 2; plait-train does not know this key of a qwen3_moe model"
ok "a layer that predicts a token further" gives $glm-mtp '{}' "layers: 2" \
    "mtp_layers: 1"
ok "... by the other key" gives $glm-mtp '{"num_nextn_predict_layers": "gone",
    "num_mtp_layers": 1}' "mtp_layers: 1"
ok "layers that predict further tokens" gives $glm-two '{}' "layers: 2" \
    "mtp_layers: 0"
ok "... are left out, in a line" grep -q "^# config.json has layers of \
multi-token prediction (num_nextn_predict_layers), which" "$dir/out"
ok "... by the other key" gives $glm-two '{"num_nextn_predict_layers": "gone",
    "num_mtp_layers": 2}' "layers: 2"
ok "... which is named" grep -q "prediction (num_mtp_layers), which" "$dir/out"
"$convert" --from "$dir/x.plait" --to "$dir/x.mtp" >"$dir/out" 2>&1
ok "... and not promised to who reads it next" python3 -c "
import json
c = json.load(open('$dir/x.mtp/config.json'))
assert c['num_nextn_predict_layers'] == 0 and c['n_group'] == 2, c"
rm -rf "$dir/x" && cp -r "$dir/$glm-mtp" "$dir/x" &&
    change "$dir/x" '{"num_nextn_predict_layers": 0}'
ok "... and belong to no model without the key" eval '! "$convert" --from "$dir/x" \
    --to "$dir/x.other" >"$dir/out" 2>&1 &&
    grep -q "tensor model.layers.2.[a-z_.]* does not belong" "$dir/out"'
ok "olmoe" gives olmoe '{}' "experts: 4" "experts_weights: scores" \
    "qk_norm: true" "qk_norm_whole: true" "norm_place: before" "ffn: 42"
ok "... weights that add up to 1" gives olmoe '{"norm_topk_prob": true}' \
    "experts_weights: shares"
ok "... clipped queries" refuses olmoe '{"clip_qkv": 8.0}' \
    "clip_qkv is 8.0; plait-train does not know this key of a olmoe model"
ok "... heads of another width" refuses olmoe '{"head_dim": 8}' \
    "head_dim is 8; this type has only hidden_size / num_attention_heads"
ok "... no width of experts alone" refuses olmoe \
    '{"moe_intermediate_size": 8}' "moe_intermediate_size is 8; plait-train"
mini=minimax_m2
ok "minimax_m2" gives $mini '{"rope_theta": "gone"}' "experts: 4" \
    "experts_scores: sigmoid" "experts_weights: shares" "shared_experts: 0" \
    "qk_norm_whole: true" "rope_columns: 4" "rope_theta: 5e+06"
ok "... by the usual key" gives $mini '{"rotary_dim": "gone",
    "partial_rotary_factor": 0.25}' "rope_columns: 2"
ok "... whole heads" gives $mini '{"rotary_dim": "gone"}' "rope_columns: 0"
ok "... heads of a width that the type has" refuses $mini \
    '{"head_dim": "gone"}' "[768, 24]"
ok "... by both" refuses $mini '{"partial_rotary_factor": 0.25}' \
    "rotary_dim is 4; partial_rotary_factor says another number"
ok "... more than a head has" refuses $mini '{"rotary_dim": 10}' \
    "rotary_dim is 10; it must be an even number from 2 to head_dim"
for key in '"scoring_func": "softmax"' '"use_qk_norm": false' \
    '"use_routing_bias": false' '"shared_intermediate_size": 8' \
    '"qk_norm_type": "per_head"' '"norm_topk_prob": false' \
    '"layernorm_mlp_beta": 3.5' '"num_experts": 4'; do
    ok "... $key" refuses $mini "{$key}" "; plait-train supports only "
done
ok "... the keys of its files" gives $mini '{"attn_type_list": [1, 1],
    "use_mtp": true, "num_mtp_modules": 3, "mtp_transformer_layers": 1,
    "qk_norm_type": "per_layer", "shared_intermediate_size": 0,
    "use_qk_norm": true, "use_routing_bias": true, "norm_topk_prob": true,
    "layernorm_full_attention_beta": 1.0, "partial_rotary_factor": 0.5,
    "mlp_intermediate_size": 64}' "experts: 4" "rope_columns: 4"
ok "... other attention" refuses $mini '{"attn_type_list": [1, 0]}' \
    "attn_type_list is [1, 0]; plait-train supports only a list of 1"
ok "exaone4" gives exaone4 '{}' "norm_place: after" "qk_norm: true" \
    "qk_norm_whole: false" "sliding_window: 20" "full_attention_every: 2" \
    "no_rope_every: 2"
ok "... by the type's pattern" gives exaone4 '{"layer_types": "gone",
    "sliding_window_pattern": "gone", "sliding_window": "gone"}' \
    "full_attention_every: 4" "no_rope_every: 4" "sliding_window: 4096"
ok "... by another" gives exaone4 '{"layer_types": "gone",
    "sliding_window_pattern": 3}' "no_rope_every: 3"
ok "... by one that transformers cannot read" refuses exaone4 \
    '{"layer_types": "gone"}' 'sliding_window_pattern is "LG"; it must be a'
ok "... without windows" gives exaone4 '{"sliding_window": null,
    "layer_types": ["full_attention", "full_attention"]}' \
    "sliding_window: 0" "no_rope_every: 0"
ok "... with windows in all layers" gives exaone4 '{"layer_types":
    ["sliding_attention", "sliding_attention"]}' "no_rope_every: 0"
for list in '["full_attention", "full_attention"]' \
    '["full_attention", "sliding_attention"]'; do
    ok "... $list" refuses exaone4 "{\"layer_types\": $list}" \
        "plait-train needs windows in the first layers"
done
ok "seed_oss" gives seed_oss '{"attention_bias": "gone",
    "attention_out_bias": "gone"}' "attention_bias: qkv" "dropout: 0" \
    "attention_dropout: 0.1"
ok "... its rates are said" grep -q "^# config.json has dropout \
(attention_dropout 0.1, residual_dropout 0.1)" "$dir/out"
ok "... also those of missing keys" gives seed_oss \
    '{"attention_dropout": "gone", "residual_dropout": "gone"}' \
    "attention_dropout: 0.1"
ok "... in a line" grep -q "(attention_dropout 0.1, residual_dropout 0.1)" \
    "$dir/out"
ok "... heads of a width that the type has" refuses seed_oss \
    '{"head_dim": "gone"}' "[768, 24]"
ok "... biases of the output, too" gives seed_oss-out '{}' \
    "attention_bias: all"
ok "... alone" refuses seed_oss \
    '{"attention_bias": false, "attention_out_bias": true}' \
    "attention_out_bias is true; with attention_bias false plait-train"
ok "a llama has no such key" refuses llama '{"attention_out_bias": true}' \
    "plait-train does not know this key of a llama model"
lite=glm4_moe_lite
ok "glm4_moe_lite" gives $lite '{}' "mla: \[14" 10 5 4 "7\]" \
    "experts_scores: sigmoid" "dense_layers: 1" "dense_ffn: 42"
ok "... by the defaults of its keys" gives $lite '{"n_group": "gone",
    "topk_group": "gone", "routed_scaling_factor": "gone", "mlp_layer_types":
    "gone", "first_k_dense_replace": "gone"}' "experts_scale: 1.8" \
    "experts_groups: 0" "dense_layers: 1"
ok "... which one key alone does not say" refuses $lite \
    '{"mlp_layer_types": "gone", "first_k_dense_replace": 0}' \
    "first_k_dense_replace is 0; mlp_layer_types says another number"
for list in '["sparse", "dense"]' '["dense"]' '["dense", 1]' '"dense"'; do
    ok "... $list" refuses $lite "{\"mlp_layer_types\": $list}" \
        "mlp_layer_types is $list; it must be a list of"
done
deep=deepseek_v3
ok "deepseek_v3" gives $deep '{}' "mla: \[14" 10 5 4 "7\]" "experts: 4" \
    "experts_scores: sigmoid" "dense_layers: 1" "attention_multiplier: 0" \
    "kv_heads: 6" "experts_groups: 2"
ok "... by the defaults of its keys" gives $deep '{"n_group": 1, "topk_group":
    1, "routed_scaling_factor": "gone", "scoring_func": "gone", "topk_method":
    "gone", "moe_layer_freq": "gone", "norm_topk_prob": "gone"}' \
    "experts_scale: 2.5" "experts_groups: 0" "experts_top_groups: 0"
ok "... 8 groups" refuses $deep '{"n_group": "gone", "topk_group": "gone"}' \
    "model.experts_groups 8 must be at most 64 and divide model.experts 4"
for key in n_group topk_group rope_interleave; do
    ok "... $key null, with which transformers computes otherwise" \
        refuses $deep "{\"$key\": null}" "$key is null; "
done
ok "... heads that do not divide hidden" gives deepseek_v3-5 '{}' "heads: 5" \
    "hidden: 24"
ok "... a latent of q, which null alone takes away" refuses $deep \
    '{"q_lora_rank": "gone"}' "[14, 24], by config.json it must be [1536, 24]"
ok "... another width of heads, which transformers makes of the others" \
    gives $deep '{"head_dim": 4, "qk_head_dim": 9}' "head_dim: 0"
ok "... halves of heads" refuses $deep '{"rope_interleave": false}' \
    "rope_interleave is false; plait-train supports only true"
ok "... biases" refuses $deep '{"attention_bias": true}' \
    "attention_bias is true; plait-train supports only false"
ok "... other routing" refuses $deep '{"scoring_func": "softmax"}' \
    'scoring_func is "softmax"; plait-train supports only "sigmoid"'
ok "... layers of experts between others" refuses $deep \
    '{"moe_layer_freq": 2}' "moe_layer_freq is 2; plait-train supports only 1"
ok "... heads that share keys" refuses $deep '{"num_key_value_heads": 2}' \
    "num_key_value_heads is 2; it must be num_attention_heads"
ok "... codes in fp8" refuses $deep \
    '{"quantization_config": {"quant_method": "fp8"}}' "quantization_config is"
# estimated KIND JSON: plait estimate counts the parameters of that config.json
# that the converted model has
estimated() {
    read_as "$1" "$2" || { sed 's/^/# /' "$dir/out"; return 1; }
    local there here
    there=$("$top_builddir/plait" estimate --model "$dir/x/config.json" \
        --gpus 1 --json | sed -n 's/^ *"parameters": \([0-9]*\),/\1/p')
    here=$("$top_builddir/plait" estimate --model \
        "$dir/x.plait/latest/plait.yaml" --gpus 1 --json |
        sed -n 's/^ *"parameters": \([0-9]*\),/\1/p')
    echo "# $there, of the converted model $here"
    [ -n "$here" ] && [ "$there" = "$here" ]
}
deep=deepseek_v2
ok "deepseek_v2" gives $deep '{}' "mla: \[0" 10 5 4 "7\]" "experts: 4" \
    "experts_scores: softmax" "experts_weights: scores" "experts_scale: 16" \
    "experts_groups: 2" "experts_top_groups: 1" "shared_experts: 2" \
    "attention_multiplier: 0[.]4018.*" "rope_attention_factor: 1"
ok "... by the defaults of its keys" gives $deep '{"topk_method": "gone",
    "scoring_func": "gone", "routed_scaling_factor": "gone", "n_group": "gone",
    "topk_group": "gone", "norm_topk_prob": "gone",
    "num_key_value_heads": "gone", "n_shared_experts": "gone"}' \
    "experts_scale: 1" "experts_groups: 0" "experts_top_groups: 0" \
    "shared_experts: 2" "kv_heads: 6"
for key in topk_method n_shared_experts; do
    ok "... $key null, with which transformers computes nothing" \
        refuses $deep "{\"$key\": null}" "$key is null; "
done
ok "... groups that count for nothing" gives $deep '{"topk_method": "greedy"}' \
    "experts_groups: 0" "experts_top_groups: 0"
for group in n_group topk_group; do
    ok "... $group that is missing" refuses $deep "{\"$group\": \"gone\"}" \
        "$group is missing; it must be a whole number of at least 1"
done
ok "... weights that add up to 1, which transformers does not read" \
    refuses $deep '{"norm_topk_prob": true}' \
    "norm_topk_prob is true; plait-train supports only false"
ok "... other routing" refuses $deep '{"topk_method": "noaux_tc"}' \
    'topk_method is "noaux_tc"; plait-train supports only "greedy"'
ok "... biases of its mlps" refuses $deep \
    '{"mlp_bias": true}' "mlp_bias is true; plait-train supports only false"
ok "... estimated with the shared experts that it does not name" \
    estimated deepseek_v2 '{"n_shared_experts": "gone"}'
hf make "$dir/v3-short" deepseek_v3-short || exit 1
for kind in deepseek_v3 kimi_k2; do
    ok "$kind: estimated by the defaults of its keys" estimated v3-short \
        "{\"model_type\": \"$kind\", \"n_shared_experts\": \"gone\",
        \"first_k_dense_replace\": \"gone\", \"q_lora_rank\": \"gone\",
        \"kv_lora_rank\": \"gone\", \"qk_nope_head_dim\": \"gone\",
        \"qk_rope_head_dim\": \"gone\", \"v_head_dim\": \"gone\"}"
done
ok "kimi_k2: YaRN, and what it makes of the scores" gives kimi_k2 '{}' \
    "mla: \[0" 10 5 4 "7\]" "rope_scaling: yarn" \
    "rope_attention_factor: 1" "attention_multiplier: 0[.]4321.*"
ok "... of positions that are not stretched nothing" gives kimi_k2 \
    '{"rope_scaling": {"type": "yarn", "factor": 1.0, "mscale_all_dim": 1.0}}' \
    "attention_multiplier: 0"
# returns YARN MSCALE ALL: a kimi_k2 whose YaRN has these keys is written and
# read again with the same factors, and what is written has this mscale for
# DeepSeek's own code and vLLM, which read no attention_factor
returns() {
    read_as kimi_k2 "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0,
        \"original_max_position_embeddings\": 16, $1}}" || return 1
    # without the old config.json, which would be written again
    rm -rf "$dir/back" "$dir/back.plait" "$dir/x.plait/config.json"
    "$convert" --from "$dir/x.plait" --to "$dir/back" >"$dir/out" 2>&1 &&
        "$convert" --from "$dir/back" --to "$dir/back.plait" >"$dir/out" 2>&1 &&
        cmp "$dir/x.plait/latest/plait.yaml" "$dir/back.plait/latest/plait.yaml" &&
        python3 - "$dir/back/config.json" "$2" "$3" <<'END'
import json, math, sys
made = json.load(open(sys.argv[1]))
rope, want = made["rope_scaling"], [float(x) for x in sys.argv[2:]]
assert rope["type"] == rope["rope_type"] == "yarn"
assert abs(rope["mscale"] - want[0]) < 1e-12, rope
assert abs(rope.get("mscale_all_dim", 0) - want[1]) < 1e-12, rope
sizes = [0.1 * x * math.log(4) + 1 for x in want]
assert abs(rope["attention_factor"] - sizes[0] / sizes[1]) < 1e-12, rope
assert (made["scoring_func"], made["topk_method"], made["moe_layer_freq"]) == \
    ("sigmoid", "noaux_tc", 1)
END
}
ok "... comes back" returns '"mscale": 1.0, "mscale_all_dim": 1.0' 1 1
ok "... with numbers of many digits" returns \
    '"mscale": 0.7071067811865475, "mscale_all_dim": 1.4142135623730951' \
    0.7071067811865475 1.4142135623730951
ok "... and small ones" returns '"mscale": 1e-3, "mscale_all_dim": 1.23456789e-4' \
    1e-3 1.23456789e-4
ok "... and a factor" returns '"attention_factor": 0.9, "mscale_all_dim": 1.0' \
    "$(python3 -c 'import math
print((0.9 * (0.1 * math.log(4) + 1) - 1) / (0.1 * math.log(4)))')" 1
ok "... and without mscale" returns '"beta_slow": 1.0' 1 0
ok "... and less than YaRN has" returns '"attention_factor": 0.5' \
    "$(python3 -c 'import math; print(-0.5 / (0.1 * math.log(4)))')" 0
# lacks SED TEXT: the model of before, changed so, is not written, with a cause
lacks() {
    sed -i "$1" "$dir/x.plait/latest/plait.yaml" && rm -rf "$dir/back" &&
        ! "$convert" --from "$dir/x.plait" --to "$dir/back" >"$dir/out" 2>&1 &&
        grep -q "$2" "$dir/out" || { sed 's/^/# /' "$dir/out"; return 1; }
}
ok "... but not a factor of scores that no mscale makes" lacks \
    's/attention_multiplier: [0-9.]*/attention_multiplier: 0.1/' \
    "model.mla with multipliers: a model of Hugging Face"
ok "... nor a model without experts" lacks 's/attention_multiplier: 0.1/attention_multiplier: 0/
    s/\(experts\|shared_experts\|dense_layers\|dense_ffn\|experts_groups\|experts_top_groups\): [0-9]*/\1: 0/
    s/experts_scores: sigmoid/experts_scores: softmax/
    s/experts_scale: [0-9.]*/experts_scale: 1/' \
    "model.mla without model.experts"
read_as deepseek_v2 '{}'
ok "a deepseek_v2 has no weights that are shares" lacks \
    's/experts_weights: scores/experts_weights: shares/' \
    "model.experts_weights must be scores, as in a deepseek_v2"
read_as qwen3_moe '{"norm_topk_prob": false}'
ok "a qwen3_moe has no groups of experts" lacks \
    's/experts_groups: 0/experts_groups: 2/
    s/experts_top_groups: 0/experts_top_groups: 1/' \
    "model.experts_groups 2 with .* without model.mla model.experts_groups must be 0"
ok "... and no scale of their weights" lacks \
    's/experts_groups: 2/experts_groups: 0/
    s/experts_top_groups: 1/experts_top_groups: 0/
    s/experts_scale: 1/experts_scale: 2.5/' \
    "model.experts_scale 2.5 with .* without model.mla model.experts_scale must be 1"
read_as qwen3_moe '{"norm_topk_prob": false}'
ok "... which a list of what no type has would name" lacks \
    's/shared_experts: 0/shared_experts: 1/' \
    "experts_weights scores, model.experts_groups 0, model.experts_scale 1, "
ok "a llama has no latents" refuses llama '{"kv_lora_rank": 8}' \
    "kv_lora_rank is 8; plait-train does not know this key of a llama model"

# -- Llama 4 -----------------------------------------------------------------
four=llama4_text
ok "llama4_text" gives $four '{}' "experts: 4" "experts_top_k: 1" \
    "experts_scores: input" "shared_experts: 1" "experts_every: 2" \
    "dense_layers: 0" "ffn: 42" "dense_ffn: 60" "qk_l2_norm: true" \
    "no_rope_every: 4" "attention_chunk: 16" "attention_temperature: 0.1" \
    "attention_temperature_floor: 8"
ok "... keys that are missing" gives $four '{"use_qk_norm": "gone",
    "attention_chunk_size": "gone", "floor_scale": "gone", "attn_scale": "gone",
    "attn_temperature_tuning": "gone", "no_rope_layer_interval": "gone",
    "no_rope_layers": []}' "qk_l2_norm: true" "attention_chunk: 8192" \
    "attention_temperature: 0.1" "attention_temperature_floor: 8192" \
    "no_rope_every: 4"
ok "... other values" gives $four '{"use_qk_norm": false, "attn_scale": 0.3,
    "attention_chunk_size": null, "no_rope_layers": [1, 0, 1, 0]}' \
    "qk_l2_norm: false" "attention_chunk: 0" "attention_temperature: 0.3" \
    "no_rope_every: 2"
ok "... no tempered queries" gives $four '{"attn_temperature_tuning": false}' \
    "attention_temperature: 0"
ok "... or no layer that has them" gives $four \
    '{"no_rope_layers": [1, 1, 1, 1]}' "attention_temperature: 0"
ok "... by a list" gives $four '{"moe_layers": [1, 3],
    "interleave_moe_layer_step": 1}' "experts_every: 2" "dense_layers: 0"
ok "... all behind the first" gives $four-first '{}' "experts_every: 0" \
    "dense_layers: 1" "dense_ffn: 60"
ok "... no others" refuses $four '{"moe_layers": [0, 3]}' \
    "moe_layers is [0, 3]; plait-train supports experts in"
ok "... the last of the first three" gives $four-third '{}' \
    "experts_every: 3" "dense_layers: 0"
ok "... the last alone" gives $four-last '{}' \
    "experts_every: 0" "dense_layers: 3"
ok "... no windows" refuses $four '{"sliding_window": 8}' "sliding_window is 8"
ok "... nor a switch of theirs" refuses $four '{"use_sliding_window": true}' \
    "use_sliding_window is true"
ok "... no layer with rotary positions" gives $four \
    '{"no_rope_layers": [0, 0, 0, 0]}' "no_rope_every: 1" \
    "qk_l2_norm: false" "attention_chunk: 0"
ok "... the names of the layers" gives $four '{"layer_types":
    ["chunked_attention", "chunked_attention", "chunked_attention",
    "full_attention"]}' "attention_chunk: 16"
ok "... that have no chunks" gives $four '{"layer_types": ["full_attention",
    "full_attention", "full_attention", "full_attention"]}' "attention_chunk: 0"
ok "... no other names" refuses $four '{"layer_types": ["full_attention",
    "chunked_attention", "chunked_attention", "full_attention"]}' \
    "plait-train supports only chunked_attention in"
ok "... no biases" refuses $four '{"attention_bias": true}' \
    "attention_bias is true"
ok "... an extension that begins and ends at once" gives $four \
    '{"rope_scaling": {"rope_type": "llama3", "factor": 16.0,
    "low_freq_factor": 1.0, "high_freq_factor": 1.0,
    "original_max_position_embeddings": 8192}}' "rope_factor: 16" \
    "rope_high_freq_factor: 1"
read_as $four '{}' && sed -i 's/shared_experts: 1/shared_experts: 0/' \
    "$dir"/x.plait/step-*/plait.yaml
! "$convert" --from "$dir/x.plait" --to "$dir/x.none" >"$dir/out" 2>&1
ok "... nor is one without a shared expert written" grep -q \
    "experts_scores input: of Hugging Face's model types only" "$dir/out"
# beside JSON: the same model in the text_config of a llama4 with these keys
beside() {
    rm -rf "$dir/$four-beside"
    cp -r "$dir/$four" "$dir/$four-beside"
    python3 - "$dir/$four-beside/config.json" "$1" <<'END'
import json, sys
text = json.load(open(sys.argv[1]))
text["tie_word_embeddings"] = False
json.dump({"model_type": "llama4", "text_config": text, "vision_config": {},
           "boi_token_index": 1, "torch_dtype": "bfloat16",
           **json.loads(sys.argv[2])}, open(sys.argv[1], "w"))
END
}
beside '{"foo": 3}'
ok "... nothing unknown beside it" refuses $four-beside '{}' \
    "foo is 3; plait-train does not know this key of a llama4 model"
beside '{"num_hidden_layers": 5}'
ok "... nor sizes" refuses $four-beside '{}' "num_hidden_layers is 5; plait"
beside '{"tie_word_embeddings": true}'
ok "... nor another value" refuses $four-beside '{}' \
    "tie_word_embeddings is true; text_config has another value"
ok "... and not without it" refuses $four-beside '{"text_config": "gone"}' \
    "text_config is missing; a llama4 must have it, with its text model"
beside '{"tie_word_embeddings": false}'
ok "... the same value is good" gives $four-beside '{}' "experts_every: 2"
ok "a llama has none of this" refuses llama '{"attention_chunk_size": 8}' \
    "plait-train does not know this key of a llama model"
ok "beside images" refuses llama '{"model_type": "gemma3", "text_config":
    {"model_type": "gemma3_text"}}' "a text model beside one of images: planned"
ok "no known type" refuses llama '{"model_type": "mamba"}' \
    'model_type is "mamba"; its layers are not known'

# -- a head that the configuration ties --------------------------------------
# head DIR CHANGE: gives the tied model a head, the embedding or another one
head_of() {
    python3 - "$top_srcdir/tests/lib" "$1" "$2" <<'END'
import json, struct, sys
sys.path.insert(0, sys.argv[1])
import hf
path = sys.argv[2] + "/model.safetensors"
data = open(path, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head, body = json.loads(data[8:8 + size]), data[8 + size:]
tensors = [(name, t["shape"], body[slice(*t["data_offsets"])])
           for name, t in head.items()]
name, shape, values = next(t for t in tensors if "embed_tokens" in t[0])
if sys.argv[3] == "other":
    values = values[:-4] + struct.pack("<f", 2.0)
hf.write_file(path, tensors + [("lm_head.weight", shape, values)], "F32")
END
}
for which in same other; do
    cp -r "$dir/llama-tied" "$dir/$which" && head_of "$dir/$which" $which
done
ok "an equal head is tied" gives same '{}' "tie_embeddings: true"
ok "without a line" test -z "$(grep differs "$dir/out")"
ok "a head that differs is kept" gives other '{}' "tie_embeddings: false"
ok "with a line" grep -q "^# config.json ties the head to the embedding, but \
lm_head.weight differs" "$dir/out"
"$convert" --from "$dir/x.plait" --to "$dir/x.back" >/dev/null 2>&1
ok "and written with its own" python3 -c "
import json, sys
sys.path.insert(0, '$top_srcdir/tests/lib')
import hf
assert json.load(open('$dir/x.back/config.json'))['tie_word_embeddings'] is False
hf.same('$dir/x', '$dir/x.back', 'F32')"

# -- rotary positions that training has changed ------------------------------
cp -r "$dir/llama" "$dir/five"
change "$dir/five" '{"rope_theta": "gone",
    "rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}}'
ok "a model of transformers 5" gives five '{}' "rope_theta: 7"
sed -i 's/rope_theta: 7/rope_theta: 9/' "$dir"/x.plait/step-*/plait.yaml
"$convert" --from "$dir/x.plait" --to "$dir/x.nine" >"$dir/out" 2>&1
ok "what was changed is not below the old object" python3 -c "
import json
c = json.load(open('$dir/x.nine/config.json'))
assert c['rope_theta'] == 9 and 'rope_parameters' not in c, c"

# plait_set CHANGE...: what sed makes of the plait.yaml that was read
plait_set() {
    for change; do sed -i "$change" "$dir"/x.plait/step-*/plait.yaml; done
}
read_as gemma3_text '{}' && plait_set 's/rope_theta: 1e+06/rope_theta: 9000/' \
    's/rope_factor: [0-9.]*/rope_factor: 8/'
"$convert" --from "$dir/x.plait" --to "$dir/x.keys" >"$dir/out" 2>&1
ok "gemma3_text: the keys that transformers 4 reads, too" python3 -c "
import json
c = json.load(open('$dir/x.keys/config.json'))
assert c['rope_theta'] == 9000 and c['rope_local_base_freq'] == 10000, c
assert c['rope_scaling']['factor'] == 8 and 'rope_parameters' not in c, c"
for kind in gemma3_text olmo3; do
    read_as $kind '{}' && plait_set 's/rope_factor: [0-9.]*/rope_factor: 8/' \
        's/rope_theta_window: [0-9.e+]*/rope_theta_window: 0/'
    "$convert" --from "$dir/x.plait" --to "$dir/x.$kind" >"$dir/out" 2>&1
    ok "$kind: layers with windows that are stretched, too" grep -q \
        "no model type .*rope_factor 8, model.rope_theta_window 0" "$dir/out"
done

# made_of KIND JSON CHANGE...: that model, changed, is written into $dir/x.made
made_of() {
    rm -rf "$dir/x.made"
    read_as "$1" "$2" && plait_set "${@:3}" &&
        "$convert" --from "$dir/x.plait" --to "$dir/x.made" >"$dir/out" 2>&1
}
made_of phi3-88 '{"partial_rotary_factor": 0.05}' \
    's/rope_columns: 4/rope_columns: 30/'
ok "30 of 88 columns, as transformers rounds their share" python3 -c "
import json
c = json.load(open('$dir/x.made/config.json'))
assert int(c['partial_rotary_factor'] * 88) == 30, c"
rm -rf "$dir/back" && cp -r "$dir/x.made" "$dir/back"
ok "and come back" gives back '{}' "rope_columns: 30"
made_of phi3 '{"partial_rotary_factor": 0.5}' 's/rope_columns: 2/rope_columns: 0/'
ok "all columns, where there were some" python3 -c "
import json
c = json.load(open('$dir/x.made/config.json'))
assert c.get('partial_rotary_factor', 1) == 1, c"
made_of llama '{}' 's/rope_columns: 0/rope_columns: 4/'
ok "all 4 columns of a head are those of a llama" python3 -c "
import json
c = json.load(open('$dir/x.made/config.json'))
assert c['model_type'] == 'llama' and c['eos_token_id'] == [2, 3], c
assert 'rms_norm_eps' in c and 'partial_rotary_factor' not in c, c"
"$convert" --from "$dir/x.plait" --to "$dir/x.mega" --format megatron \
    >"$dir/out" 2>&1
ok "of Megatron-LM, too" test -d "$dir/x.mega"
ok "some columns, slower" eval '! made_of phi3 \
    "{\"partial_rotary_factor\": 0.5}" "s/rope_factor: [0-9.]*/rope_factor: 8/"'
ok "... in one line" grep -q "model.rope_columns 2 with model.rope_factor 8: no \
model type" "$dir/out"
made_of phi3 '{}' 's/rope_factor: [0-9.]*/rope_factor: 8/'
ok "slower positions are no phi3" python3 -c "
import json
c = json.load(open('$dir/x.made/config.json'))
assert c['model_type'] == 'mistral' and c['rope_scaling']['factor'] == 8, c"

# -- dropout -----------------------------------------------------------------
has_line() { # TEXT: convert has said it
    grep -qF "# $1" "$dir/out"
}
ok "gpt2 has dropout where it does not say" gives gpt2 '{}' "dropout: 0.1" \
    "attention_dropout: 0.1"
ok "which is said" has_line "the model trains with dropout, as config.json \
says: model.dropout 0.1, model.attention_dropout 0.1"
ok "and is in the plait.yaml that trains it" grep -q "dropout: 0.1" \
    "$dir/x.plait/plait.yaml"
ok "one rate of two is not taken" gives gpt2 \
    '{"attn_pdrop": 0.0, "embd_pdrop": 0, "resid_pdrop": 0.2}' "dropout: 0" \
    "attention_dropout: 0"
ok "but said" has_line "config.json has dropout (resid_pdrop 0.2), but the \
model trains with model.dropout 0 and model.attention_dropout 0"
made_of gpt2 '{"attn_pdrop": 0.0, "embd_pdrop": 0, "resid_pdrop": 0.2}'
ok "and stays in the file" python3 -c "
import json
c = json.load(open('$dir/x.made/config.json'))
assert (c['embd_pdrop'], c['resid_pdrop']) == (0, 0.2), c"
ok "llama" gives llama '{"attention_dropout": 0.1}' "dropout: 0" \
    "attention_dropout: 0.1"
ok "phi3 leaves the embedding" gives phi3 \
    '{"embd_pdrop": 0.25, "resid_pdrop": 0.25}' "dropout: 0" \
    "attention_dropout: 0"
ok "which is said" has_line "config.json has dropout (resid_pdrop 0.25), but \
the model trains with model.dropout 0 and model.attention_dropout 0"
read_as phi3 '{"embd_pdrop": 0.25}'
ok "its embd_pdrop is read by no one" test -z "$(grep dropout "$dir/out")"
read_as llama '{"hidden_dropout": 0.1}'
ok "a rate that leaves the embedding" has_line "config.json has dropout \
(hidden_dropout 0.1), but the model trains with model.dropout 0 and \
model.attention_dropout 0"
read_as llama '{"attention_dropout": 0.0}'
ok "none, no line" test -z "$(grep dropout "$dir/out")"
ok "no rate" refuses gpt2 '{"attn_pdrop": 1.0}' "attn_pdrop is 1.0; it must \
be a number from 0 to 0.999"
made_of gpt2 '{}' 's/attention_dropout: 0.1/attention_dropout: 0.3/'
ok "a trained gpt2 has the new rate" python3 -c "
import json
c = json.load(open('$dir/x.made/config.json'))
assert c['attn_pdrop'] == 0.3 and c.get('resid_pdrop', 0.1) == 0.1, c"
made_of llama '{}' 's/\([ {]\)dropout: 0\b/\1dropout: 0.2/' \
    's/attention_dropout: 0\b/attention_dropout: 0.3/'
ok "a llama keeps that of attention" python3 -c "
import json
c = json.load(open('$dir/x.made/config.json'))
assert c['attention_dropout'] == 0.3 and 'hidden_dropout' not in c, c"
ok "and the other is left out with a line" has_line "model.dropout 0.2 is \
left out: Hugging Face's type of model has none; only training it on differs"
read_as gpt2 '{}' && rm "$dir/x.plait/config.json" && plait_set \
    's/dropout: 0.1/dropout: 0/g' &&
    "$convert" --from "$dir/x.plait" --to "$dir/x.out" >/dev/null
ok "a gpt2 without has none" python3 -c "
import json
c = json.load(open('$dir/x.out/config.json'))
assert c['attn_pdrop'] == c['embd_pdrop'] == c['resid_pdrop'] == 0, c"
echo "1..$n"
