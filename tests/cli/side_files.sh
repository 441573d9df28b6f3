#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a model of Hugging Face's has besides its weights comes back byte for
# byte, over conversion, training, resuming in another layout and conversion:
# ten models, one of each kind, with and without chat templates.
set -u
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
export OMP_NUM_THREADS=1
convert=$top_builddir/plait-convert
train=$top_builddir/plait-train
python3 "$top_srcdir/tests/lib/tokens.py" "$dir/tokens" 4000

# round NAME TYPE: to a checkpoint, a step, one more on two ranks, and back
round() {
    local at=$dir/$1
    local how=(--set data.train="$dir/tokens" --set train.global_batch=2
        --set train.micro_batch=1 --set lr.warmup=0
        --set lr.schedule=constant)
    "$convert" --from "$at" --to "$at.start" &&
        "$train" "$at.start/plait.yaml" "${how[@]}" --set train.steps=1 &&
        "$top_builddir/plait" run --np 2 --dp=2 -- \
            "$train" "$at.start/plait.yaml" "${how[@]}" --set train.steps=2 &&
        "$convert" --from "$at.start-trained" --to "$at.back" --dtype "$2"
}

python3 "$top_srcdir/tests/lib/side_files.py" make "$dir" 10 >"$dir/models" ||
    exit 1
while read -r name type; do
    ok "$name: there and back as $type" round "$name" "$type"
    ok "$name: each byte beside the weights" python3 \
        "$top_srcdir/tests/lib/side_files.py" same "$dir/$name" \
        "$dir/$name.back"
done <"$dir/models"
ok "all were tried" test "$n" = 20

# Another type of the weights changes its name, and nothing else.
read -r name type <"$dir/models"
[ "$type" = fp32 ] && other=bf16 || other=fp32
"$convert" --from "$dir/$name.start-trained" --to "$dir/other" \
    --dtype $other >"$dir/out" 2>&1
ok "another type of the weights" python3 \
    "$top_srcdir/tests/lib/side_files.py" same "$dir/$name" "$dir/other" $other

# A tokenizer that is not the model's: its special tokens, in all files.
tok=$top_srcdir/tests/fixtures/tokenizer
mkdir "$dir/other-tok"
cp "$tok/gpt2.json" "$dir/other-tok/tokenizer.json"
seq 3000 >"$dir/text"
"$top_builddir/plait-prep" "$dir/text" --out "$dir/prepared" \
    -t bpe:"$dir/other-tok" >/dev/null
hf() { python3 "$top_srcdir/tests/lib/hf.py" "$@"; }
hf make "$dir/small" llama
sed -i 's/"vocab_size": 130/"vocab_size": 500/' "$dir/small/config.json"
python3 "$top_srcdir/tests/lib/side_files.py" widen "$dir/small" 500
"$convert" --from "$dir/small" --to "$dir/small.start" >/dev/null
ok "trained with another tokenizer" "$train" "$dir/small.start/plait.yaml" \
    --set data.train="$dir/prepared" --set train.steps=1 \
    --set train.global_batch=2 --set train.micro_batch=1
"$convert" --from "$dir/small.start-trained" --to "$dir/small.back" >/dev/null
ok "has that tokenizer" cmp "$dir/other-tok/tokenizer.json" \
    "$dir/small.back/tokenizer.json"
ok "ends texts with that one's token, and says nothing else" \
    bash -c "grep -q '\"eos_token_id\": 0' '$dir/small.back/config.json' &&
        grep -q '\"bos_token_id\": null' '$dir/small.back/config.json' &&
        [ ! -e '$dir/small.back/generation_config.json' ]"

# Files of another model that lie beside the checkpoints are not written.
cp "$dir/small/config.json" "$dir/small/generation_config.json" \
    "$dir/$name.start-trained"
"$convert" --from "$dir/$name.start-trained" --to "$dir/stale" >/dev/null
ok "config.json of another model is ignored, and its generation_config.json" \
    bash -c "! grep -q 'vocab_size\": 500' '$dir/stale/config.json' &&
        [ ! -e '$dir/stale/generation_config.json' ]"

# Checkpoints of earlier versions have generation_config.json alone.
cp "$dir/$name/generation_config.json" "$dir/$name.start-trained"
rm "$dir/$name.start-trained/config.json"
"$convert" --from "$dir/$name.start-trained" --to "$dir/earlier" >/dev/null
ok "without config.json the ids are those of generation_config.json" python3 \
    "$top_srcdir/tests/lib/side_files.py" ids "$dir/earlier"
echo "1..$n"
