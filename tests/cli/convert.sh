#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-convert: to a checkpoint and back with the same bits; one line for every
# wrong input; no incomplete output.
set -u
convert=$top_builddir/plait-convert
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
. "$top_srcdir/tests/lib/tier.sh"

hf() { python3 "$top_srcdir/tests/lib/hf.py" "$@"; }
# quietly ARGS...: convert; fails if anything is printed on stderr
quietly() { "$convert" "$@" 2>"$dir/err" && [ ! -s "$dir/err" ]; }

# trip KIND FILES DTYPE NAME-OF-IT: convert a model to a checkpoint and back
trip() {
    local at=$dir/$1-$2-$3
    hf make "$at" "$1" "$2" "$3" || exit 1
    ok "$1, $2 files, $3: to a checkpoint" \
        quietly --from "$at" --to "$at.plait"
    ok "$1: the checkpoint has its model and its tokenizer" \
        test -f "$at.plait/latest/plait.yaml" -a \
        -f "$at.plait/tokenizer.json" -a -f "$at.plait/generation_config.json"
    ok "$1: back to $3" \
        quietly --from "$at.plait" --to "$at.back" --dtype "$4"
    ok "$1: the same tensors and the same config.json" \
        hf same "$at" "$at.back" "$3"
    ok "$1: its checkpoint alone, as fp32" \
        quietly --from "$at.plait/step-00000000" --to "$at.wide" --format hf
    ok "$1: with the same config.json, but for the type" \
        python3 -c "import sys; sys.path.insert(0, '$top_srcdir/tests/lib')
import hf; hf.same_config('$at', '$at.wide')"
    ok "$1: the same tensors in fp32" \
        python3 -c "import sys; sys.path.insert(0, '$top_srcdir/tests/lib')
import hf; hf.same('$at', '$at.wide', 'F32')"
}

trip gpt2 1 F32 fp32
trip gpt2-untied 3 BF16 bf16
trip llama 2 F16 fp16
trip llama-tied 1 BF16 bf16
trip llama3 1 F32 fp32
trip mistral 1 F32 fp32
trip mixtral 3 F32 fp32
trip qwen2 1 BF16 bf16
trip qwen2-window 1 F32 fp32
trip qwen3 2 BF16 bf16
trip qwen3_moe 2 F32 fp32
trip qwen3_moe-first 2 BF16 bf16
trip gpt_oss 2 BF16 bf16
trip deepseek_v3 2 BF16 bf16
trip deepseek_v2 2 BF16 bf16
trip deepseek_v3-mtp 1 F32 fp32
trip glm4_moe-mtp 2 BF16 bf16
trip llama4_text 2 BF16 bf16
trip kimi_k2 2 F32 fp32
trip granite 1 F32 fp32
trip gemma 1 BF16 bf16
trip gemma2 2 BF16 bf16
trip gemma3_text 2 F32 fp32
trip olmo2 1 F32 fp32
trip olmo3 2 BF16 bf16
trip olmoe 2 BF16 bf16
trip minimax_m2 2 F32 fp32
trip exaone4 1 BF16 bf16
trip seed_oss 2 F32 fp32
trip glm4_moe_lite 2 BF16 bf16
trip phi3 2 BF16 bf16
trip phi3-long 1 F32 fp32
trip smollm3 1 F32 fp32
good=$dir/llama-tied-1-BF16
ok "nothing is left beside them" \
    test -z "$(find "$dir" -name '*.partial' -o -name '.step-*')"

# value DIR KEY: what config.json has for it
value() {
    python3 -c "import json; print(json.load(open('$1/config.json'))['$2'])"
}

# A window that no layer has, as it begins after the last one.
at=$dir/qwen2-full
cp -r "$dir/qwen2-window-1-F32" "$at"
sed -i 's/"max_window_layers": 1/"max_window_layers": 2/' "$at/config.json"
ok "qwen2 without windowed layers: to a checkpoint" \
    quietly --from "$at" --to "$at.plait"
ok "its attention reaches over all" \
    grep -q "seq_len: 32" "$at.plait/latest/plait.yaml"
ok "qwen2 without windowed layers: back" \
    quietly --from "$at.plait" --to "$at.back"
ok "and still without" \
    test "$(value "$at.back" max_window_layers)" = 2

# -- llm.c's files -----------------------------------------------------------

# llmc DTYPE NAME-OF-IT: convert a GPT-2 to llm.c's file and back
llmc() {
    local at=$dir/gpt2-$1
    hf make "$at" gpt2 1 "$1" && "$convert" --from "$at" --to "$at.start" \
        >/dev/null || exit 1
    python3 "$top_srcdir/tests/lib/llmc.py" "$at" "$at.bin" "$2"
    ok "$2: a checkpoint to llm.c's file" \
        quietly --from "$at.start" --to "$at.llmc" --format llmc --dtype "$2"
    ok "$2: as llm.c writes it" cmp "$at.bin" "$at.llmc/model.bin"
    ok "$2: llm.c's file to a checkpoint" \
        quietly --from "$at.bin" --to "$at.in"
    ok "$2: from that to llm.c's file" \
        quietly --from "$at.in" --to "$at.out" --format llmc --dtype "$2"
    ok "$2: the same bits" cmp "$at.bin" "$at.out/model.bin"
    "$convert" --from "$at.in" --to "$at.out.hf" >/dev/null
    ok "$2: the tensors of Hugging Face's" \
        python3 -c "import sys; sys.path.insert(0, '$top_srcdir/tests/lib')
import hf; hf.same('$at', '$at.out.hf')"
}

llmc F32 fp32
llmc BF16 bf16

# A model that came without the ids of special tokens: no defaults of others.
at=$dir/gpt2-F32.in
ids() {
    echo "$(value "$1" bos_token_id) $(value "$1" eos_token_id)" \
        "$(value "$1" pad_token_id)"
}
ok "no tokenizer: no special tokens" \
    test "$(ids "$dir/gpt2-F32.out.hf")" = "None None None"
cat >"$at/tokenizer.json" <<'END'
{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer":
 {"type": "ByteLevel", "add_prefix_space": false},
 "added_tokens": [{"id": 1, "content": "<|endoftext|>", "special": true}]}
END
ok "with a tokenizer" quietly --from "$at/latest" --to "$at.ends"
ok "the token that ends its texts" test "$(ids "$at.ends")" = "None 1 None"

# -- training from it -------------------------------------------------------

export OMP_NUM_THREADS=1
train=$top_builddir/plait-train
mpirun=$top_srcdir/tests/lib/mpirun.sh
python3 "$top_srcdir/tests/lib/tokens.py" "$dir/tokens" 4000

# start RANKS KIND ARGS...: train three steps; metrics in $dir/m.jsonl
start() {
    local ranks=$1 kind=$2
    shift 2
    rm -f "$dir/m.jsonl"
    set -- "$dir/$kind.plait/latest/plait.yaml" --set model.seq_len=16 \
        --set data.train="$dir/tokens" --set train.steps=3 \
        --set train.global_batch=4 --set train.micro_batch=2 \
        --set lr.warmup=0 --metrics "$dir/m.jsonl" "$@"
    if [ "$ranks" = 1 ]; then
        timeout 240 "$train" "$@"
    else
        timeout 240 sh "$mpirun" "$ranks" "$train" "$@"
    fi
}

# not TEXT REGEX COMMAND...: it is refused in one line
not() {
    local text=$1 regex=$2
    shift 2
    ! "$@" >/dev/null 2>"$dir/err" && [ "$(wc -l <"$dir/err")" = 1 ] &&
        grep -q -e "$regex" "$dir/err"
    ok "$text: $(sed "s:$dir/::g" "$dir/err")" test $? = 0
}

# follows FILE: whether the losses of the last run equal the file's
follows() {
    python3 - "$1" "$dir/m.jsonl" <<'END'
import json, sys
a, b = ([json.loads(line)["loss"] for line in open(f) if '"loss"' in line]
        for f in sys.argv[1:])
assert len(a) == 3 and len(b) == 3, (a, b)
assert all(abs(x - y) <= 2e-6 * x for x, y in zip(a, b)), (a, b)
END
}

mpi=no
command -v mpirun >/dev/null &&
    grep -q "define HAVE_MPI 1" "$top_builddir/config.h" && mpi=yes
trained="gpt2-1-F32 llama3-1-F32 qwen3_moe-2-F32 deepseek_v3-mtp-1-F32"
! all_tier || trained+=" llama-tied-1-BF16 mixtral-3-F32 qwen3-2-BF16 \
    granite-1-F32 gpt_oss-2-BF16 phi3-2-BF16 smollm3-1-F32"
for kind in $trained; do
    ok "$kind: trained from its Hugging Face directory" \
        start 1 $kind --init "$dir/$kind"
    cp "$dir/m.jsonl" "$dir/$kind.jsonl"
    start 1 $kind --init "$dir/$kind.plait" >/dev/null 2>&1
    ok "$kind: the same from its checkpoint" follows "$dir/$kind.jsonl"
    ok "$kind: another loss from random weights" \
        bash -c "$(declare -f start follows)
        dir=$dir train=$train; start 1 $kind --init new >/dev/null 2>&1
        ! follows $dir/$kind.jsonl 2>/dev/null"
    [ $mpi = yes ] || continue
    start 4 $kind --init "$dir/$kind" --set parallel.pp=2 \
        --set parallel.zero=3 --set parallel.dp=2 >"$dir/out" 2>&1
    ok "$kind: the same with pp 2, dp 2, zero 3" follows "$dir/$kind.jsonl"
    start 3 $kind --init "$dir/$kind" --set parallel.tp=3 >"$dir/out" 2>&1
    ok "$kind: the same with tp 3" follows "$dir/$kind.jsonl"
done
kind=deepseek_v3-mtp-1-F32
start 1 $kind --init "$dir/$kind" --set model.mtp_layers=0 >"$dir/out" 2>&1
ok "what predicts a token further is left out where it is not trained" \
    test $? = 0
ok "... in a line" grep -q "multi-token prediction .*left out" "$dir/out"

# copies NAME [CHANGED [TENSOR]]: the model, of which the module stores the
# embedding and the head once more
copies() {
    cp -r "$dir/$kind" "$dir/$1"
    python3 "$top_srcdir/tests/lib/hf.py" copies "$dir/$@"
}
copies mtp-copies
ok "a module's copies of embedding and head" \
    quietly --from "$dir/mtp-copies" --to "$dir/mtp-copies.plait"
ok "... are no part of its checkpoint" \
    quietly --from "$dir/mtp-copies.plait" --to "$dir/mtp-copies.back"
ok "... which is that of the model without them" \
    python3 "$top_srcdir/tests/lib/hf.py" same "$dir/$kind" "$dir/mtp-copies.back"
for part in embed_tokens shared_head.head; do
    copies mtp-$part $part
    not "another $part of the module" "layers.2.$part.weight is not" \
        "$convert" --from "$dir/mtp-$part" --to "$dir/mtp-$part.plait"
    not "... to train from" "layers.2.$part.weight is not" \
        start 1 $kind --init "$dir/mtp-$part"
    ok "... but for a model without" start 1 $kind --init "$dir/mtp-$part" \
        --set model.mtp_layers=0
done
copies mtp-more "" model.layers.2.more.weight
not "a tensor that a module does not have" "layers.2.more.weight does not" \
    "$convert" --from "$dir/mtp-more" --to "$dir/mtp-more.plait"
not "a checkpoint that has a module, for a model without" \
    "has a layer of multi-token prediction: set model.mtp_layers to 1" \
    start 1 $kind --init "$dir/$kind.plait" --set model.mtp_layers=0
not "files that have none, for a model with one" \
    "has no layer of multi-token prediction: set model.mtp_layers to 0" \
    start 1 deepseek_v3-2-BF16 --init "$dir/deepseek_v3-2-BF16" \
    --set model.mtp_layers=1
ok "gpt_oss: YaRN's usual factor of queries, written out" start 1 \
    gpt_oss-2-BF16 --init "$dir/gpt_oss-2-BF16" \
    --set model.rope_attention_factor=1.138629436111989
kind=llama-2-F16
start 1 $kind --init "$dir/$kind" --set checkpoint.dir="$dir/run" >/dev/null
ok "what was trained is written for Hugging Face" \
    quietly --from "$dir/run" --to "$dir/tuned"
ok "with the tokenizer of the model that it began with" \
    cmp "$dir/$kind/tokenizer.json" "$dir/tuned/tokenizer.json"
ok "and so is a checkpoint alone" \
    quietly --from "$dir/run/latest" --to "$dir/tuned2"
ok "with its tokenizer" \
    cmp "$dir/$kind/tokenizer.json" "$dir/tuned2/tokenizer.json"
ok "a run that has a checkpoint goes on from it" \
    start 1 $kind --init "$dir/nothere" --set checkpoint.dir="$dir/run" \
    --set train.steps=4 --resume-anyway train.steps

# not_started REGEX ARGS...: a training from a llama is refused with one line
not_started() {
    local regex=$1
    shift
    n=$((n + 1))
    if ! start 1 llama-2-F16 "$@" >/dev/null 2>"$dir/err" &&
        [ "$(wc -l <"$dir/err")" = 1 ] && grep -Eq -e "$regex" "$dir/err"; then
        echo "ok $n - $(sed "s:$dir/::g" "$dir/err")"
    else
        echo "not ok $n - wanted /$regex/"
        sed 's/^/# /' "$dir/err"
    fi
}

not_started 'nothere: No such file' --init "$dir/nothere"
not_started 'exclude each other' --init "$dir/$kind" --resume "$dir/run"
not_started 'model.family is not the family' --init "$dir/gpt2-1-F32"
not_started 'model.kv_heads is 3, but 6' --init "$dir/llama-tied-1-BF16"
not_started 'model.norm_eps is 1e-05, but 1e-06' --init "$dir/$kind" \
    --set model.norm_eps=1e-5
not_started 'model.kv_heads is 6, but 3' --init "$dir/$kind.plait" \
    --set model.kv_heads=6
not_started 'model.sliding_window is 0, but 20' --init "$dir/mistral-1-F32"
not_started 'no optimizer state to resume from.*--init' --resume "$dir/$kind.plait/latest"

# -- wrong input ------------------------------------------------------------

# refused CODE REGEX ARGS...: one line, and no output
refused() {
    local code=$1 regex=$2 got
    shift 2
    n=$((n + 1))
    timeout 240 "$convert" "$@" >"$dir/out" 2>"$dir/err" </dev/null
    got=$?
    if [ $got = "$code" ] && [ "$(wc -l <"$dir/err")" = 1 ] &&
        [ ! -s "$dir/out" ] && grep -q '^plait-convert: ' "$dir/err" &&
        grep -Eq -e "$regex" "$dir/err" && [ ! -e "$dir/made" ] &&
        [ ! -e "$dir/.made.partial" ]; then
        echo "ok $n - $(sed "s:$dir/::g" "$dir/err")"
    else
        echo "not ok $n - wanted $code and /$regex/, got $got"
        sed 's/^/# /' "$dir/err"
    fi
}

# config KIND KEY VALUE: make a model with one value of config.json changed
config() {
    rm -rf "$dir/bad"
    hf make "$dir/bad" "$1"
    python3 - "$dir/bad/config.json" "$2" "$3" <<'END'
import json, sys
path, key, value = sys.argv[1:]
config = json.load(open(path))
config[key] = json.loads(value)
json.dump(config, open(path, "w"))
END
}

# refused_config REGEX KIND KEY VALUE: such a model is refused
refused_config() {
    config "$2" "$3" "$4"
    refused 1 "$1" --from "$dir/bad" --to "$dir/made"
}

refused 2 "unknown option '--bogus'; see --help" --bogus
refused 2 'from needs a value' --from
refused 2 'from DIR or --to DIR is missing' --from "$good"
refused 2 "unexpected argument 'more'; --from DIR" \
    --from "$good" --to "$dir/made" more
refused 2 "format must be hf, plait, llmc or megatron, not 'onnx'" \
    --from "$good" --to "$dir/made" --format onnx
refused 2 "dtype must be fp32, bf16 or fp16, not 'fp8'" --from "$good" \
    --to "$dir/made" --dtype fp8
refused 1 'dtype is for --format hf' --from "$good" --to "$dir/made" \
    --dtype bf16
refused 1 'convert it to a checkpoint first' --from "$good" --to "$dir/made" \
    --format llmc
refused 1 'is a model of llm.c.s already' --from "$dir/gpt2-F32.bin" \
    --to "$dir/made" --format llmc
refused 1 'convert it to a checkpoint first' --from "$dir/gpt2-F32.bin" \
    --to "$dir/made" --format hf
refused 1 'is a checkpoint of plait.s already' --from "$good.plait" \
    --to "$dir/made" --format plait
refused 1 'has no model.family other than gpt2' --from "$good.plait" \
    --to "$dir/made" --format llmc
refused 1 'has no model.tie_embeddings false' \
    --from "$dir/gpt2-untied-3-BF16.plait" --to "$dir/made" --format llmc
refused 1 'llm.c.s models are fp32 or bf16' --from "$dir/gpt2-F32.in" \
    --to "$dir/made" --format llmc --dtype fp16

# number I VALUE: make an llm.c file with one number of its header changed
number() {
    cp "$dir/gpt2-F32.bin" "$dir/bad.bin"
    python3 -c "import struct, sys; sys.stdout.buffer.write(
        struct.pack('<i', $2))" |
        dd of="$dir/bad.bin" bs=4 seek="$1" conv=notrunc 2>/dev/null
}

# refused_number I VALUE REGEX: such a file is refused
refused_number() {
    number "$1" "$2"
    refused 1 "$3" --from "$dir/bad.bin" --to "$dir/made"
}

refused_number 0 20240327 'neither the directory of a model nor a file of llm.c'
refused_number 1 4 'version 4 of llm.c.s models is not supported; 3 .fp32. and 5 .bf16. are'
refused_number 4 0 'corrupt header: number 4 is 0'
refused_number 4 3 'truncated: its header says'
refused_number 4 1 'too long: its header says'
refused_number 5 5 'hidden.*not divisible by.*heads'
refused_number 7 129 'a vocabulary of 130 is padded to 129'
head -c 500 "$dir/gpt2-F32.bin" >"$dir/bad.bin"
refused 1 'shorter than a header' --from "$dir/bad.bin" --to "$dir/made"
refused 1 'is a model of Hugging Face.s already' --from "$good" \
    --to "$dir/made" --format hf
refused 1 'nothere: No such file' --from "$dir/nothere" --to "$dir/made"
mkdir "$dir/empty"
refused 1 'neither a model of Hugging Face.*nor a checkpoint' \
    --from "$dir/empty" --to "$dir/made"
refused 1 'the directory is not empty' --from "$good" --to "$dir/llama-2-F16"
refused 1 'must end in the name of a new directory' --from "$good" --to "$dir/.."
refused 1 'Not a directory' --from "$good" --to "$good/config.json"
refused_config 'model_type is "mamba".*supports' llama model_type '"mamba"'
refused_config 'hidden_act is "gelu".*supports only "silu"' llama hidden_act '"gelu"'
refused_config 'activation_function is "relu"' gpt2 activation_function '"relu"'
refused_config 'scale_attn_by_inverse_layer_idx is true' gpt2 \
    scale_attn_by_inverse_layer_idx true
refused_config 'mlp_bias is true' mistral mlp_bias true
refused_config 'gate_proj.bias.*requires|gate_proj.bias is missing' llama \
    mlp_bias true
refused_config 'attention_bias is true' mistral attention_bias true
refused_config 'head_dim 7 must be even' qwen3 head_dim 7
refused_config 'num_local_experts is missing' qwen3 model_type '"mixtral"'
refused_config 'q_proj.bias.*requires' qwen3 attention_bias true
refused_config 'k_norm.weight does not belong to the model|q_norm.weight is not' qwen3 \
    model_type '"llama"'
refused_config 'rope_type is "dynamic"' llama rope_scaling \
    '{"rope_type": "dynamic", "factor": 4.0}'
refused_config 'quantization_config' llama quantization_config '{"bits": 4}'
refused_config 'n_layer is 0; it must be a whole number' gpt2 n_layer 0
refused_config 'n_head is "3"; it must be' gpt2 n_head '"3"'
refused_config 'num_hidden_layers is null' llama num_hidden_layers null
refused_config 'rms_norm_eps is -1' llama rms_norm_eps -1
refused_config 'hidden.*not divisible by.*heads' llama num_attention_heads 7
refused_config 'tensor model.layers.2.* is missing' llama num_hidden_layers 3
refused_config 'layers.1.* does not belong to the model' llama num_hidden_layers 1
refused_config 'embed_tokens.weight is \[130, 24\], by config.json it must be \[71' \
    llama vocab_size 71
config llama tie_word_embeddings false
echo '{"model_type": ' >"$dir/bad/config.json"
refused 1 'config.json: not a JSON object: line' --from "$dir/bad" \
    --to "$dir/made"
config llama tie_word_embeddings false
rm "$dir/bad/model.safetensors"
refused 1 'neither model.safetensors nor' --from "$dir/bad" --to "$dir/made"
: >"$dir/bad/pytorch_model.bin"
refused 1 'PyTorch pickle' --from "$dir/bad" --to "$dir/made"
: >"$dir/bad/model.safetensors"
refused 1 'empty file' --from "$dir/bad" --to "$dir/made"
head -c 3000 "$dir/llama-2-F16/model-00001-of-00002.safetensors" \
    >"$dir/bad/model.safetensors"
refused 1 'truncated|corrupt' --from "$dir/bad" --to "$dir/made"
rm "$dir/bad/model.safetensors" "$dir/bad/pytorch_model.bin"
echo '{"weight_map": {"lm_head.weight": "../x.safetensors"}}' \
    >"$dir/bad/model.safetensors.index.json"
refused 1 'no file of this directory has tensor' --from "$dir/bad" --to "$dir/made"
echo '{"weight_map": {"lm_head.weight": "gone.safetensors"}}' \
    >"$dir/bad/model.safetensors.index.json"
refused 1 'gone.safetensors: No such file' --from "$dir/bad" --to "$dir/made"
rm -rf "$dir/bad" && cp -r "$good" "$dir/bad" &&
    python3 - "$dir/bad/model.safetensors" <<'END'
import sys
data = open(sys.argv[1], "rb").read().replace(b'"BF16"', b'"U16" ', 1)
open(sys.argv[1], "wb").write(data)
END
refused 1 'has type U16; only F32, BF16 and F16' --from "$dir/bad" \
    --to "$dir/made"
cp -r "$good.plait" "$dir/worse"
printf x | dd of="$dir/worse/latest/rank-00000.safetensors" bs=1 seek=9000 \
    conv=notrunc 2>/dev/null
refused 1 'corrupt: its checksum' --from "$dir/worse" --to "$dir/made"
sed -i 's/^  layers: .*/  layers: 3/' "$dir/worse/latest/plait.yaml"
refused 1 'parameters, but its plait.yaml|checksum' \
    --from "$dir/worse" --to "$dir/made"
rm "$dir/worse/latest/plait.yaml"
refused 1 'plait.yaml: No such file' --from "$dir/worse" --to "$dir/made"
rm "$dir/worse/latest/manifest.json"
refused 1 'manifest.json|plait.yaml|no checkpoint' --from "$dir/worse" \
    --to "$dir/made"
if [ "$(id -u)" != 0 ]; then
    mkdir -m 555 "$dir/closed"
    refused 1 'Permission denied' --from "$good" --to "$dir/closed/made"
fi
echo "1..$n"
