#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of Megatron-LM: converted and back with the same bits, also in
# files of several ranks, and one line for every wrong one. parity/megatron.sh
# compares with Megatron-core.
set -u
convert=$top_builddir/plait-convert
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
lib=$top_srcdir/tests/lib
file=release/mp_rank_00/model_optim_rng.pt

hf() { python3 "$lib/hf.py" "$@"; }
megatron() { python3 "$lib/megatron.py" "$@"; }
# quietly ARGS...: convert; fails if anything is printed on stderr
quietly() { "$convert" "$@" 2>"$dir/err" && [ ! -s "$dir/err" ]; }

# model KIND DTYPE: make a model, $at, and its checkpoint, $at.plait
model() {
    at=$dir/$1-$2
    [ -d "$at.plait" ] && return
    hf make "$at" "$1" 1 "$2" &&
        "$convert" --from "$at" --to "$at.plait" >/dev/null || exit 1
}

# trip KIND DTYPE NAME-OF-IT FILES ARGS...: convert it to Megatron's format and
# back
trip() {
    local kind=$1 type=$2 name=$3 files=$4
    shift 4
    model "$kind" "$type"
    rm -rf "$at.mega" "$at.in" "$at.back"
    ok "$kind, $name $*: to Megatron-LM's" \
        quietly --from "$at.plait" --to "$at.mega" --format megatron \
        --dtype "$name" "$@"
    ok "in $files files, with the tokenizer, and which there is" \
        bash -c "[ \$(ls $at.mega/release | wc -l) = $files ] &&
            [ -f $at.mega/tokenizer.json ] &&
            [ \$(cat $at.mega/latest_checkpointed_iteration.txt) = release ]"
    ok "and to a checkpoint" quietly --from "$at.mega" --to "$at.in"
    ok "of the same model" \
        diff <(grep -v sliding_window "$at.plait/latest/plait.yaml") \
        <(grep -v sliding_window "$at.in/latest/plait.yaml")
    "$convert" --from "$at.in" --to "$at.back" --dtype "$name" >/dev/null
    ok "with the same tensors" python3 -c "import sys
sys.path.insert(0, '$lib')
import hf; hf.same('$at', '$at.back')"
}

trip gpt2 F32 fp32 1
trip gpt2 F32 fp32 6 --tp 3 --pp 2 --transformer-impl local
ok "dropout comes along, which is said" grep -q "^# the model trains with \
dropout, as it did: model.dropout 0.1, model.attention_dropout 0.1" \
    <("$convert" --from "$at.mega" --to "$dir/dropped")
trip gpt2-untied BF16 bf16 2 --pp 2
trip llama F16 fp16 1 --transformer-impl local
trip llama F16 fp16 3 --tp 3
trip llama-tied BF16 bf16 12 --tp 6 --pp 2
trip mixtral F32 fp32 3 --tp 3 --transformer-impl local
trip mixtral F32 fp32 2 --pp 2
trip qwen2 BF16 bf16 3 --tp 3
trip qwen3 BF16 bf16 6 --tp 3 --pp 2

# windowed KIND: Megatron-LM would attend to all of a sequence
windowed() {
    model "$1" F32
    ! "$convert" --from "$at.plait" --to "$at.mega" --format megatron \
        >/dev/null 2>"$dir/err" && [ ! -e "$at.mega" ] && grep -q \
        "has no model.sliding_window below model.seq_len" "$dir/err"
}
ok "mistral: windows below the sequence are refused" windowed mistral

# Rows of linear_qkv: for each of three groups two heads of q, then k, then v.
model llama F32
"$convert" --from "$at.plait" --to "$at.mega" --format megatron >/dev/null
ok "Python's zipfile and pickle read the file" \
    megatron read "$at.mega/$file"
python3 - "$at" "$lib" >"$dir/err" 2>&1 <<'END'
import glob, json, struct, sys
at, lib = sys.argv[1:]
sys.path.insert(0, lib)
import megatron
args, there = megatron.load(f"{at}.mega/release/mp_rank_00/model_optim_rng.pt")
data = open(f"{at}/model.safetensors", "rb").read()
n, = struct.unpack("<Q", data[:8])
here = {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]
        for k, v in json.loads(data[8:8 + n]).items() if k[0] != "_"}
q, k, v = (here[f"model.layers.1.self_attn.{x}_proj.weight"] for x in "qkv")
head = 4 * 24 * 4  # rows, columns, bytes
want = b"".join(q[2 * g * head:2 * (g + 1) * head] +
                k[g * head:(g + 1) * head] + v[g * head:(g + 1) * head]
                for g in range(3))
shape, got = there["decoder.layers.1.self_attention.linear_qkv.weight"]
assert shape == (48, 24) and got == want
gate, up = (here[f"model.layers.0.mlp.{x}_proj.weight"] for x in ("gate", "up"))
assert there["decoder.layers.0.mlp.linear_fc1.weight"] == ((84, 24), gate + up)
shape, words = there["embedding.word_embeddings.weight"]
mine = here["model.embed_tokens.weight"]
assert shape == (256, 24) and words == mine + bytes(len(words) - len(mine))
assert args["vocab_size"] == 130 and args["padded_vocab_size"] == 256
assert args["num_query_groups"] == 3 and args["swiglu"] is True
assert abs(args["norm_epsilon"] - 1e-6) < 1e-12
assert args["hidden_dropout"] == args["attention_dropout"] == 0
END
ok "q, k and v, gate and up, and the vocabulary lie as Megatron-LM has them" \
    bash -c "! grep . $dir/err"
mv "$at.mega/release" "$at.mega/iter_0000020"
echo 20 >"$at.mega/latest_checkpointed_iteration.txt"
ok "an iteration's" quietly --from "$at.mega" --to "$dir/iteration"
ok "and without the file that names it" \
    quietly --from "$at.mega/iter_0000020" --to "$dir/iteration2"
mv "$at.mega/iter_0000020" "$at.mega/release"
echo release >"$at.mega/latest_checkpointed_iteration.txt"
ok "nothing is left beside them" \
    test -z "$(find "$dir" -name '*.partial' -o -name '.step-*')"

# -- wrong input ------------------------------------------------------------

# refused CODE REGEX ARGS...: one line, and no output
refused() {
    local code=$1 regex=$2 got
    shift 2
    n=$((n + 1))
    (cd "$dir" && timeout 240 "$convert" "$@") >"$dir/out" 2>"$dir/err" \
        </dev/null
    got=$?
    if [ $got = "$code" ] && [ "$(wc -l <"$dir/err")" = 1 ] &&
        [ ! -s "$dir/out" ] && grep -q '^plait-convert: ' "$dir/err" &&
        grep -Eq -e "$regex" "$dir/err" && [ ! -e "$dir/made" ] &&
        [ ! -e "$dir/.made.partial" ] && [ ! -e "$dir/pwned" ]; then
        echo "ok $n - $(sed "s:$dir/::g" "$dir/err")"
    else
        echo "not ok $n - wanted $code and /$regex/, got $got"
        sed 's/^/# /' "$dir/err"
        rm -rf "$dir/made"
    fi
}

# damaged REGEX CASE: a file damaged in this way is refused
damaged() {
    rm -rf "$dir/bad"
    cp -r "$at.mega" "$dir/bad"
    megatron damage "$dir/bad/$file" "$2" || exit 1
    refused 1 "$1" --from "$dir/bad" --to "$dir/made"
}

convert=$(realpath "$convert")
damaged 'not a file of torch.save.s' cut
damaged 'not a file of torch.save.s' empty
damaged 'not a file of torch.save.s .a zip since PyTorch 1.6.' legacy-torch
damaged 'not one of torch.save.s: it has no data.pkl' other-zip
damaged 'not one of torch.save.s: it has no data.pkl' no-pickle
damaged 'an entry is compressed' compressed
damaged 'directory of the zip lies outside the file' long-list
damaged 'directory of the zip lies outside the file' list-place
damaged 'an entry lies outside the file' far-entry
damaged 'corrupt pickle: ends too early at byte 0' empty-pickle
damaged 'corrupt pickle: ' cut-pickle
damaged 'corrupt pickle: ends too early' long-text
damaged 'its pickle is not a dict' text
damaged 'its pickle is not a dict' list
damaged 'its pickle is not a dict|it has no .model.' system
damaged 'an opcode that torch.save does not write' protocol-0
damaged 'no mark' no-mark
damaged 'nothing on the stack' no-stack
damaged 'a number of the memo' memo
damaged 'what is not in the memo' recall
damaged 'num_layers is missing' itself
damaged 'it has no "args"' no-args
damaged 'it has no "model"' no-model
damaged 'legacy models are not supported' legacy
damaged 'tensor decoder.layers.2.* is missing' layers
damaged 'decoder.layers.1.* does not belong to the model' fewer-layers
damaged 'num_layers must be a whole number' no-layers
damaged 'num_layers must be a whole number' odd-layers
damaged 'num_layers is missing' lost-layers
damaged 'mp_rank_01.*No such file|not divisible by tensor_model' ranks
damaged 'vocab_size is above padded_vocab_size' vocab
damaged 'word_embeddings.weight is .256, 24., by its args it must be .256, 25.' hidden
damaged 'swiglu must be true with rope' relu
damaged 'hidden_dropout is 1; it must be from 0 to 0.999' dropout
damaged 'normalization must be RMSNorm' norm
damaged 'position_embedding_type must be' position
damaged 'window_size is not supported' window
damaged 'is not fp32, bf16 or fp16' int8
damaged 'has too little data in this file' huge
damaged 'is not contiguous' strides
damaged 'has no shape' three
damaged 'has no data in this file' gone-data
rm -rf "$dir/bad" && mkdir -p "$dir/bad/iter_0000001"
echo 1 >"$dir/bad/latest_checkpointed_iteration.txt"
refused 1 'neither mp_rank_00/model_optim_rng.pt nor common.pt' --from "$dir/bad" \
    --to "$dir/made"
: >"$dir/bad/iter_0000001/.metadata"
echo '{"sharded_backend": "zarr"}' >"$dir/bad/iter_0000001/metadata.json"
refused 1 'its sharded_backend is zarr; only torch_dist' \
    --from "$dir/bad" --to "$dir/made"
echo '{"sharded_backend": "torch_dist"}' >"$dir/bad/iter_0000001/metadata.json"
refused 1 'common.pt: No such file' --from "$dir/bad" --to "$dir/made"
rm "$dir/bad/iter_0000001/metadata.json"
echo soon >"$dir/bad/latest_checkpointed_iteration.txt"
refused 1 'neither "release" nor the number' --from "$dir/bad" --to "$dir/made"
refused 1 "is a checkpoint of Megatron-LM's already" --from "$at.mega" \
    --to "$dir/made" --format megatron
refused 1 'convert it to a checkpoint first' --from "$at.mega" \
    --to "$dir/made" --format hf
refused 1 'convert it to a checkpoint first' --from "$at" \
    --to "$dir/made" --format megatron
refused 1 'are for --format megatron' --from "$at.plait" --to "$dir/made" \
    --tp 2
refused 1 'tp 2 does not divide model.kv_heads 3' --from "$at.plait" \
    --to "$dir/made" --format megatron --tp 2
refused 1 'pp 3 does not divide model.layers 2' --from "$at.plait" \
    --to "$dir/made" --format megatron --pp 3
refused 2 "tp must be a whole number from 1 to 512, not '0'" --tp 0
refused 2 "pp must be a whole number from 1 to 512, not 'x'" --pp x
refused 2 "transformer-impl must be transformer_engine or local, not 'apex'" \
    --transformer-impl apex
model llama3 F32
refused 1 'has no model.attention_bias all' --from "$at.plait" \
    --to "$dir/made" --format megatron
model glm4_moe F32
refused 1 'does not write model.experts_scores sigmoid for Megatron-LM' \
    --from "$at.plait" --to "$dir/made" --format megatron
model deepseek_v3 F32
refused 1 'does not write model.experts_scores sigmoid for Megatron-LM' \
    --from "$at.plait" --to "$dir/made" --format megatron
# unwritten SED TEXT: a qwen3_moe changed so is not written, for this reason
model qwen3_moe F32
unwritten() {
    rm -rf "$dir/other" && cp -r "$at.plait" "$dir/other" &&
        sed -i "$1" "$dir/other/latest/plait.yaml"
    refused 1 "plait-convert does not write model.$2 for Megatron-LM" \
        --from "$dir/other" --to "$dir/made" --format megatron
}
unwritten 's/experts_weights: shares/experts_weights: scores/' \
    'experts_weights scores'
unwritten 's/experts_scale: 1/experts_scale: 2.5/' experts_scale
unwritten 's/experts_groups: 0/experts_groups: 2/
    s/experts_top_groups: 0/experts_top_groups: 1/' experts_groups
unwritten 's/shared_experts: 0/shared_experts: 1/' shared_experts
model deepseek_v3 F32
cp -r "$at.plait" "$dir/dense"
sed -i 's/\(experts\|shared_experts\|dense_layers\|dense_ffn\): [0-9]*/\1: 0/
    s/experts_\(top_\)*groups: [0-9]*/experts_\1groups: 0/
    s/experts_scores: sigmoid/experts_scores: softmax/
    s/experts_scale: [0-9.]*/experts_scale: 1/' "$dir/dense/latest/plait.yaml"
refused 1 'has no model.mla that works as in plait-train' \
    --from "$dir/dense" --to "$dir/made" --format megatron
echo "1..$n"
