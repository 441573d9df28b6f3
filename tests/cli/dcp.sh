#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of torch.distributed.checkpoint: read with the same bits, and one
# line for every wrong one. parity/dcp.sh reads those that torch writes.
set -u
convert=$(realpath "$top_builddir/plait-convert")
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
lib=$top_srcdir/tests/lib

# quietly ARGS...: convert; fails if anything is printed on stderr
quietly() { "$convert" "$@" >"$dir/out" 2>"$dir/err" && [ ! -s "$dir/err" ]; }
same() {
    python3 -c "import sys; sys.path.insert(0, '$lib')
import hf; hf.same('$1', '$2')"
}

# trip KIND DTYPE NAME-OF-IT CASE
trip() {
    at=$dir/$1-$2
    [ -d "$at" ] || python3 "$lib/hf.py" make "$at" "$1" 1 "$2" || exit 1
    rm -rf "$at".*
    python3 "$lib/dcp.py" "$at.dcp" "$at" "$4" || exit 1
    ok "$1, $2, $4: to a checkpoint" quietly --from "$at.dcp" --to "$at.in"
    ok "with its tokenizer" cmp "$at/tokenizer.json" "$at.in/tokenizer.json"
    ok "and to Hugging Face's" \
        quietly --from "$at.in" --to "$at.back" --dtype "$3"
    ok "with the same tensors" same "$at" "$at.back"
}

trip gpt2 F32 fp32 good
trip qwen3 F16 fp16 good
trip llama BF16 bf16 wrapped
trip llama F32 fp32 good

# The model's config.json may lie above the checkpoint.
mkdir "$dir/above"
cp -r "$at.dcp" "$dir/above/step-7"
mv "$dir/above/step-7/config.json" "$dir/above"
ok "config.json above it" \
    quietly --from "$dir/above/step-7" --to "$dir/above.in"

# A head that config.json ties, but that differs.
cp -r "$at.dcp" "$dir/untied"
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' \
    "$dir/untied/config.json"
ok "a tied head that differs" quietly --from "$dir/untied" --to "$dir/untied.in"
ok "stays, with a line" grep -q "lm_head.weight differs from it" "$dir/out"
ok "in the model" grep -q "tie_embeddings: false" "$dir/untied.in/plait.yaml"

# -- wrong input ------------------------------------------------------------

# refused REGEX ARGS...: one line, and no output
refused() {
    local regex=$1 got
    shift
    n=$((n + 1))
    (cd "$dir" && timeout 240 "$convert" "$@") >"$dir/out" 2>"$dir/err" \
        </dev/null
    got=$?
    if [ $got = 1 ] && [ "$(wc -l <"$dir/err")" = 1 ] && [ ! -s "$dir/out" ] &&
        grep -q '^plait-convert: ' "$dir/err" &&
        grep -Eq -e "$regex" "$dir/err" && [ ! -e "$dir/made" ] &&
        [ ! -e "$dir/.made.partial" ] && [ ! -e "$dir/pwned" ]; then
        echo "ok $n - $(sed "s:$dir/::g" "$dir/err")"
    else
        echo "not ok $n - wanted 1 and /$regex/, got $got"
        sed 's/^/# /' "$dir/err"
        rm -rf "$dir/made"
    fi
}

cp -r "$at.dcp" "$dir/latent"
rm -rf "$dir/deepseek"
python3 "$lib/hf.py" make "$dir/deepseek" deepseek_v3 || exit 1
cp "$dir/deepseek/config.json" "$dir/latent"
refused 'latent attention .deepseek_v2, deepseek_v3, kimi_k2. is not read from checkpoints' \
    --from "$dir/latent" --to "$dir/made"

rm -rf "$dir/four"
python3 "$lib/hf.py" make "$dir/four" llama4_text || exit 1
cp "$dir/four/config.json" "$dir/latent"
refused 'a llama4_text is not read from checkpoints' \
    --from "$dir/latent" --to "$dir/made"

# damaged REGEX CASE: a checkpoint damaged in this way is refused
damaged() {
    rm -rf "$dir/bad"
    python3 "$lib/dcp.py" "$dir/bad" "$at" "$2" || exit 1
    refused "$1" --from "$dir/bad" --to "$dir/made"
}

embedding='metadata: tensor model.embed_tokens.weight'
damaged "$embedding has chunks that overlap: those at .0, 0. and .0, 11." overlap
damaged "$embedding has chunks that overlap: they have more numbers than" copies
damaged "$embedding has too many chunks in the same rows" beside
damaged "$embedding has a chunk that reaches beyond its size" beyond
damaged "$embedding has a chunk without a place or a size" flat
damaged "$embedding has a chunk without a place or a size" negative
damaged "$embedding has a hole: no chunk has 780 of its 3120 numbers, the one at .65, 0." hole
damaged "$embedding has no list of chunks" no-chunks
damaged "$embedding has no size" no-size
damaged "$embedding is too large" huge
damaged 'embed_tokens.weight is .130, 25., by config.json it must be .130, 24.' shape
damaged "$embedding is torch.int64, not fp32, bf16 or fp16" int64
damaged 'chunk .0, 0. of .*embed_tokens.weight is of another type than' other-type
damaged 'chunk .0, 0. of .*embed_tokens.weight is .12., by .metadata it must be .65, 12.' other-item
damaged "$embedding has a chunk of which storage_data says no place" no-place
damaged "$embedding has a chunk in a file outside of the folder" up
damaged "$embedding has a chunk in a file outside of the folder" root
damaged '__7_0.distcp: No such file' gone-file
damaged '__0_0.distcp: truncated: it has' far
damaged '__0_0.distcp: (corrupt|not a file of torch.save)' short
damaged 'storage_data has a place without a file, an offset or a length' no-length
damaged "$embedding is compressed" compressed
damaged 'tensor model.norm.weight is missing; config.json requires it' lost
damaged 'layers.9.mlp.up_proj.weight does not belong to the model' more
damaged 'tensor model.norm.weight is there twice' twice
damaged 'it has no tensor model.embed_tokens.weight' no-model
damaged 'it has two models, under actor. and critic.' two-models
damaged 'names posix.system, which is not known' system
damaged '__0_0.distcp: truncated' cut-file
damaged '__0_0.distcp: not a file of torch.save' other-file
damaged 'corrupt pickle: ' cut
damaged 'corrupt pickle: ends too early' empty
damaged 'it is not of class Metadata' dict
damaged 'an opcode that torch.save does not write' protocol-0
rm "$dir/bad/config.json"
refused "says nothing of its model: copy the model's config.json" \
    --from "$dir/bad" --to "$dir/made"
refused 'is a checkpoint of torch.distributed.checkpoint: convert it to' \
    --from "$at.dcp" --to "$dir/made" --format hf
echo "1..$n"
