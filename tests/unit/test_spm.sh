#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SentencePiece tokenizers, trained here on texts of this source tree, compared
# with SentencePiece's own programs.
prep=$top_builddir/plait-prep
train=$top_builddir/plait-train
test=$top_builddir/tests/unit/test_spm
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
cat "$top_srcdir/LICENSE" "$top_srcdir"/man/*.[1-8] \
    "$top_srcdir"/topology/plan/*.[ch] >"$tmp/text"
"$prep" "$tmp/text" --out "$tmp/none" -t spm:/nonexistent 2>"$tmp/err"
if grep -q "built without SentencePiece" "$tmp/err"; then
    echo "1..0 # SKIP built without SentencePiece"
    exit 0
fi
command -v spm_train >/dev/null ||
    { echo "1..0 # SKIP needs spm_train"; exit 0; }

# model NAME ARGS...: train a model
model() {
    name=$1
    shift
    spm_train --input="$tmp/text" --model_prefix="$tmp/$name" \
        --vocab_size=600 "$@" >"$tmp/log" 2>&1 ||
        { cat "$tmp/log"; exit 99; }
}

# `bytes`, like Llama's, keeps every byte; `words` keeps words only.
model bytes --model_type=bpe --byte_fallback --remove_extra_whitespaces=false \
    --normalization_rule_name=identity
model words --model_type=unigram
# `blanks` keeps all blanks, and takes line breaks as such. What is one text with
# line breaks here is one line of spm_encode's with blanks in their place.
model blanks --model_type=unigram --remove_extra_whitespaces=false
# plait encodes these itself: with tokens of several words, without a blank in
# front of a text; and leaves these to the library.
identity="--model_type=bpe --byte_fallback --normalization_rule_name=identity"
kept="$identity --remove_extra_whitespaces=false"
model joins $kept --split_by_whitespace=false
model plain $kept --add_dummy_prefix=false --split_digits=true
model nfkc --model_type=bpe --byte_fallback --remove_extra_whitespaces=false
model defined $kept --user_defined_symbols=static,int
model few $identity
model endless --model_type=word --eos_id=-1
# A text longer than the part that is encoded at a time.
for i in 1 2 3; do cat "$tmp/text"; done >"$tmp/long"
grep '[a-z]' "$tmp/text" | head -n 500 | tr -s ' \t' ' ' |
    sed 's/^ //; s/ $//' >"$tmp/lines"
spm_encode --model="$tmp/words.model" --output_format=id \
    <"$tmp/lines" >"$tmp/ids"
{ head -n 300 "$top_srcdir/man/plait-train.1"; head -n 60 "$tmp/text"; } \
    >"$tmp/lined"
tr '\n' ' ' <"$tmp/lined" |
    spm_encode --model="$tmp/blanks.model" --output_format=id >"$tmp/lined.ids"
head -c 1000 "$tmp/bytes.model" >"$tmp/cut.model"
# Characters of one to four bytes, most of which the model has not seen.
printf 'na\303\257ve \342\202\254 \360\237\231\202\360\237\231\203 x \316\261' \
    >"$tmp/letters"
"$test" "$tmp" && "$prep" "$tmp/text" --out "$tmp/d" -t "spm:$tmp/bytes.model" \
    >"$tmp/out" && grep -q "^  vocab: 600$" "$tmp/out"
result=$?
[ $result = 0 ] || echo "not ok - plait-prep"

# sample ARGS...: train a little on this text and print a sample
sample() {
    timeout 240 "$train" "$tmp/c.yaml" --device cpu "$@" >"$tmp/out" 2>&1
}

# wrong WHAT: print a failed check with the output
wrong() {
    echo "not ok - $1"
    sed 's/^/# /' "$tmp/out"
    result=1
}

cat >"$tmp/c.yaml" <<EOF
model: {layers: 1, hidden: 32, heads: 2, vocab: 600, seq_len: 32}
data: {train: "$tmp/d/train.*"}
train: {steps: 30, global_batch: 8, micro_batch: 8}
optim: {lr: 1e-2}
checkpoint: {dir: "$tmp/ck"}
EOF
# left by an earlier preparation
echo '{}' >"$tmp/d/tokenizer.json"
sample || wrong "training"
[ ! -e "$tmp/ck/tokenizer.json" ] &&
    cmp "$tmp/ck/tokenizer.model" "$tmp/bytes.model" >"$tmp/out" 2>&1 ||
    wrong "the tokenizer of the data is kept, and no other"
rm "$tmp/d/tokenizer.json"
sample --sample 60 --sample-prompt "static int" \
    --tokenizer "spm:$tmp/bytes.model" || wrong "sampling"
head -n 1 "$tmp/out" | grep -q '^static int' &&
    [ "$(tr -d '0-9 \n' <"$tmp/out" | wc -c)" -gt 30 ] || wrong "its text"
sample --sample 5 --sample-prompt "static int" || wrong "without --tokenizer"
head -n 1 "$tmp/out" | grep -q '^static int' || wrong "the tokens' own tokenizer"
# added ID NAME: generate with a tokenizer.json that Plait cannot read, which has
# that added token, beside a tokenizer.model
added() {
    cat >"$tmp/ck/tokenizer.json" <<END
{"normalizer": {"type": "Prepend", "prepend": "_"}, "model": {"type": "BPE",
 "vocab": {}, "merges": []}, "added_tokens": [{"id": 2, "content": "</s>"},
 {"id": $1, "content": "$2", "special": true}]}
END
    timeout 240 "$top_builddir/plait-generate" "$tmp/ck" --device cpu \
        --prompt "static int" --tokens 5 >"$tmp/out" 2>&1
}
cp "$tmp/bytes.model" "$tmp/ck/tokenizer.model"
added 1 "<s>" && grep -q "^static int" "$tmp/out" ||
    wrong "tokenizer.model in place of tokenizer.json"
for token in "600 <|im_start|>" "300 <|im_start|>"; do
    added $token
    [ $? = 1 ] && [ "$(wc -l <"$tmp/out")" = 1 ] &&
        grep -q "lacks its token '<|im_start|>'" "$tmp/out" ||
        wrong "tokenizer.model without an added token"
done
rm "$tmp/d/prep.json"
sample --sample 5 && grep -Eqx '( [0-9]+){6}' "$tmp/out" || wrong "numbers"
sample --sample 5 --sample-prompt x
[ $? = 1 ] && grep -q "^plait-train: a prompt needs --tokenizer" \
    "$tmp/out" || wrong "a prompt without a tokenizer"
sample --sample 5 --tokenizer "spm:$tmp/none.model"
[ $? = 1 ] && [ "$(grep -c '^plait-train: .*none.model' "$tmp/out")" = 1 ] ||
    wrong "no such model"
exit $result
