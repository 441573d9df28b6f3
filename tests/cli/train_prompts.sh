#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prompts that are read but not learned: plait-prep marks them, plait-train and
# plait-eval count only the other tokens, and wrong lines are refused.
set -u
export OMP_NUM_THREADS=1
prep=$top_builddir/plait-prep
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/err

# ids FOLDER: its 16-bit tokens
ids() { od -An -v -tu2 -w2 -j64 "$dir/$1/train.bin" | tr -d ' '; }

# value KEY FILE: the first value of KEY
value() { sed -n "s/.*\"$1\":\([0-9.e+-]*\).*/\1/p" "$2" | head -n 1; }

# equal A B: to six digits
equal() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a > b ? a - b : b - a
        exit !(a > 0 && d <= 1e-6 * b) }'
}

# refused CODE REGEX ARGS...: plait-prep refuses them and leaves nothing
refused() {
    local code=$1 regex=$2 got
    shift 2
    timeout 240 "$prep" --out "$dir/none" "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    ok "$(head -n 1 "$dir/err" | sed "s:$dir/::g")" \
        test "$got" = "$code" -a "$(grep -c . "$dir/err")" = 1 -a \
        "$(grep -Ec "^plait-prep: .*($regex)" "$dir/err")" = 1 -a \
        ! -e "$dir/none/train.bin"
}

cat >"$dir/few.jsonl" <<'END'
{"prompt": "2+2=", "completion": "4"}
{"completion": "yes", "prompt": ""}
{"prompt": "left out", "completion": ""}
{"prompt": "é?", "completion": "\n"}
END
"$prep" "$dir/few.jsonl" --prompt-field prompt --out "$dir/few" >"$dir/out" \
    2>"$dir/err"
ok "plait-prep" test $? = 0
ids few | awk '{ m = $1 >= 32768; t = $1 % 32768
    if (t == 256) printf "|"; else if (t < 128) printf "%s%c", m ? "_" : "", t
    else printf "%s%d", m ? "_" : "", t }' >"$dir/got"
printf '_2_+_2_=4|yes|_195_169_?\n|' >"$dir/want"
ok "a prompt's tokens are marked, the end of a document is not" \
    cmp "$dir/want" "$dir/got"
ok "by a version of its own" test "$(od -An -tu4 -j8 -N4 \
    "$dir/few/train.bin" | tr -d ' ')" = 2

for i in $(seq 18); do
    echo "{\"ask\": \"$i times $i? \", \"say\": \"It is $((i * i)).\"}"
done >"$dir/text"
"$prep" "$dir/text" --prompt-field ask --field say --out "$dir/data" \
    >"$dir/out" 2>"$dir/err" || sed 's/^/# /' "$dir/err"
# Add as many tokens as make whole samples, and the token after them.
more=$((17 - $(ids data | wc -l) % 16))
echo "{\"ask\": \"\", \"say\": \"$(printf '%*s' $((more - 1)) '' |
    tr ' ' x)\"}" >>"$dir/text"
"$prep" "$dir/text" --prompt-field ask --field say --out "$dir/data" \
    >"$dir/out" 2>"$dir/err" || sed 's/^/# /' "$dir/err"
samples=$(($(ids data | wc -l) / 16))
want=$(ids data | sed 1d | awk '$1 < 32768' | wc -l)
cat >"$dir/c.yaml" <<END
model: {layers: 2, hidden: 32, heads: 2, vocab: 257, seq_len: 16}
data: {train: $dir/data, val: $dir/data/train.bin}
train: {steps: 2, global_batch: $samples, micro_batch: 1, eval_every: 2,
        eval_steps: 1}
optim: {lr: 1e-2}
checkpoint: {dir: $dir/ck}
END
"$top_builddir/plait-train" "$dir/c.yaml" --metrics "$dir/m" >"$dir/out" \
    2>"$dir/err"
ok "plait-train" test $? = 0
ok "$want of $((samples * 16)) targets count" \
    test "$(value loss_tokens "$dir/m")" = "$want"
"$top_builddir/plait-eval" "$dir/ck" "$dir/data/train.bin" --json \
    >"$dir/json" 2>"$dir/err"
ok "plait-eval predicts the same" test "$(value tokens "$dir/json")" = "$want"
ok "with the loss of training" equal "$(value loss "$dir/json")" \
    "$(value val_loss "$dir/m")"
"$prep" "$dir/text" --field say --out "$dir/say" >"$dir/out" 2>"$dir/err"
ok "without prompts there is no mark" test "$(od -An -tu4 -j8 -N4 \
    "$dir/say/train.bin" | tr -d ' ')" = 1

refused 2 'prompt-field needs --format plait' "$dir/text" --prompt-field ask --format llmc
refused 2 'prompt-field needs --format plait' "$dir/text" --prompt-field ask --format megatron
refused 2 'name of a *field' "$dir/text" --prompt-field ""
refused 1 "line 1: has no field 'completion'; use --field " "$dir/text" \
    --prompt-field ask
refused 1 "line 1: has no field 'prompt'; use --prompt-field " "$dir/text" \
    --prompt-field prompt --field say
echo '{"prompt": ["a"], "completion": "b"}' >"$dir/list"
refused 1 "field 'prompt' is not a string" "$dir/list" --prompt-field prompt
echo "2 + 2 = 4" >"$dir/plain"
refused 1 "line 1: not JSON" "$dir/plain" --prompt-field prompt
echo "1..$n"
