#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Models with model.mup: converted they compute the same, as granite, or the
# conversion is refused; a run goes on with it bit for bit, and not without it.
set -u
export OMP_NUM_THREADS=1
train=$top_builddir/plait-train eval=$top_builddir/plait-eval
convert=$top_builddir/plait-convert
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/err

give_up() {
    sed 's/^/# /' "$dir/err"
    echo "Bail out! $1"
    exit 1
}

seq -s ' ' 1 800 >"$dir/text"
"$top_builddir/plait-prep" "$dir/text" --out "$dir/data" >"$dir/err" 2>&1 ||
    give_up prep
data=$dir/data/train.bin

# mup NAME FAMILY ARGS...: a run of a model with all of mup, or without the base's
# head_dim where $head is empty
head=", mup_head_dim: 8"
mup() {
    local name=$1 family=$2
    shift 2
    cat >"$dir/$name.yaml" <<END
model: {family: $family, layers: 3, hidden: 48, heads: 4, vocab: 257,
        seq_len: 32, mup: 16, mup_layers: 2$head}
data: {train: $data}
train: {steps: 4, global_batch: 4}
optim: {lr: 0.01}
lr: {schedule: constant, warmup: 0}
checkpoint: {dir: $dir/$name, every: 2}
END
    "$train" "$dir/$name.yaml" --metrics "$dir/$name.jsonl" "$@" \
        >"$dir/err" 2>&1
}

refused() {
    ! "$@"
}

# loss DIR: of a model, as plait-eval finds it
loss() {
    "$eval" "$1" "$data" --json 2>"$dir/err" | sed 's/.*"loss":\([^,]*\).*/\1/'
}

# steps NAME: the loss of each of its steps
steps() {
    sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/' "$dir/$1.jsonl"
}

mup llama llama || give_up train
ok "a llama is converted" "$convert" --from "$dir/llama" --to "$dir/hf"
ok "to a granite" grep -q '"model_type": "granite"' "$dir/hf/config.json"
want=$(loss "$dir/llama")
ok "that computes the same ($want)" test "$want" -a "$(loss "$dir/hf")" = "$want"
ok "and could be trained on" mup from llama --init "$dir/hf"

mup gpt2 gpt2 || give_up train
for format in hf llmc megatron; do
    "$convert" --from "$dir/gpt2" --to "$dir/$format.gpt2" --format "$format" \
        2>"$dir/err"
    ok "a gpt2 to $format: $(cat "$dir/err")" \
        test "$(grep -c 'model.mup' "$dir/err")" = 1
done

head=
mup same llama || give_up train
ok "a llama with the base's head_dim is converted" \
    "$convert" --from "$dir/same" --to "$dir/hf.same"
ok "and the granite could be trained on" mup from.same llama --init "$dir/hf.same"
ok "but not as without mup" refused mup from.usual llama --init "$dir/hf.same" \
    --set model.mup=0 --set model.mup_layers=0
ok "for its constants" grep -q 'model.residual_multiplier' "$dir/err"
head=", mup_head_dim: 8"

rm -rf "$dir/llama/step-00000004"
steps llama >"$dir/whole"
sed -i '3,$d' "$dir/llama.jsonl"
ok "resumed after step 2" mup llama llama
ok "as it says" grep -q '^resumed after step 2$' "$dir/err"
ok "by the same bits" cmp "$dir/whole" <(steps llama)
rm -rf "$dir/llama/step-00000004"
ok "with another base it is refused" refused mup llama llama --set model.mup=48
ok "for that reason" grep -q 'model.mup' "$dir/err"
echo "1..$n"
