#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-generate and plait-eval: the same text in every layout; several prompts
# give the same as each alone; from a checkpoint and from a Hugging Face
# directory; whole characters; the loss of training; one line for every wrong
# input.
set -u
export OMP_NUM_THREADS=1
generate=$top_builddir/plait-generate
eval=$top_builddir/plait-eval
mpirun=$top_srcdir/tests/lib/mpirun.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/err

# refused CODE REGEX COMMAND...: whether it exits with CODE and one line that
# matches
refused() {
    local code=$1 regex=$2 got
    shift 2
    timeout 240 "$@" >"$dir/out" 2>"$dir/err" </dev/null
    got=$?
    ok "$(head -n 1 "$dir/err" | sed "s:$dir/::g")" \
        test "$got" = "$code" -a "$(wc -l <"$dir/err")" = 1 -a \
        "$(grep -Ec "^plait-(generate|eval): .*($regex)" "$dir/err")" = 1
}

give_up() {
    sed 's/^/# /' "$dir/err"
    echo "Bail out! $1"
    exit 1
}

seq -s ' ' 1 4000 >"$dir/text"
"$top_builddir/plait-prep" "$dir/text" --out "$dir/data" >"$dir/err" 2>&1 ||
    give_up prep
# 512 bytes to train on and the last token's target: 8 samples
seq -s ' ' 300 500 | head -c 538 >"$dir/short"
"$top_builddir/plait-prep" "$dir/short" --out "$dir/short.data" \
    >"$dir/err" 2>&1 || give_up prep
val=$dir/short.data/train.bin
cat >"$dir/c.yaml" <<EOF
model: {family: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, vocab: 257,
        seq_len: 64}
data: {train: $dir/data/train.bin, val: $val}
train: {steps: 40, global_batch: 4, micro_batch: 4, eval_every: 40,
        eval_steps: 2}
optim: {lr: 5e-3}
lr: {warmup: 5}
checkpoint: {dir: $dir/ck, every: 40}
EOF
"$top_builddir/plait-train" "$dir/c.yaml" --metrics "$dir/metrics" \
    >"$dir/err" 2>&1 || give_up train

mpi=
command -v mpirun >/dev/null &&
    sh "$mpirun" 2 "$generate" "$dir/ck" --prompt 1 --tokens 1 \
        --set parallel.tp=2 >/dev/null 2>&1 && mpi=yes
[ "$mpi" ] || echo "# no MPI: one layout alone"

# text ARGS...: the text that plait-generate writes
text() {
    timeout 240 "$generate" "$dir/ck" "$@" 2>"$dir/err"
}

# ranks RANKS ARGS...: the same with several ranks
ranks() {
    local ranks=$1
    shift
    timeout 240 sh "$mpirun" "$ranks" "$generate" "$dir/ck" "$@" 2>"$dir/err"
}

greedy=(--prompt "300 301" --temperature 0)
drawn=(--prompt "17 18" --tokens 40 --seed 7 --top-k 20 --top-p 0.9)
text "${greedy[@]}" --tokens 30 >"$dir/greedy"
ok "a text begins with its prompt" grep -q "^300 301" "$dir/greedy"
ok "and is 30 bytes longer" test "$(wc -c <"$dir/greedy")" = 38
# More tokens than the model's context: it goes on with the newer half.
text "${greedy[@]}" --tokens 150 >"$dir/long"
ok "a text may be longer than seq_len" test "$(wc -c <"$dir/long")" = 158
ok "and begins alike" test "$(head -c 37 "$dir/long")" = "$(cat "$dir/greedy")"
text "${drawn[@]}" >"$dir/drawn"
ok "the same seed, the same text" cmp "$dir/drawn" <(text "${drawn[@]}")
ok "another seed, another one" \
    test "$(text "${drawn[@]}" --seed 8)" != "$(cat "$dir/drawn")"
ok "the likeliest of one is greedy" \
    cmp "$dir/greedy" <(text --prompt "300 301" --top-k 1 --tokens 30)

for layout in ${mpi:+2:2:1 2:1:2 4:2:2}; do
    IFS=: read -r size tp pp <<<"$layout"
    set -- --set "parallel.tp=$tp" --set "parallel.pp=$pp"
    ranks "$size" "${greedy[@]}" --tokens 150 "$@" >"$dir/other"
    ok "tp $tp, pp $pp: the same greedy text" cmp "$dir/long" "$dir/other"
    ranks "$size" "${drawn[@]}" "$@" >"$dir/other"
    ok "tp $tp, pp $pp: the same drawn text" cmp "$dir/drawn" "$dir/other"
done

prompts=("300 301" 7 "1234 1235 1236 12")
for prompt in "${prompts[@]}"; do
    text --prompt "$prompt" --temperature 0 --tokens 40
done >"$dir/each"
text --prompt "${prompts[0]}" --prompt "${prompts[1]}" \
    --prompt "${prompts[2]}" --temperature 0 --tokens 40 >"$dir/all"
ok "each text has a line above it" \
    test "$(grep -c '^==> [123] <==$' "$dir/all")" = 3
ok "three prompts are what each is alone" \
    cmp "$dir/each" <(sed '/^==> [123] <==$/d; /^$/d' "$dir/all")
text --prompt $'\xff\xc3(' --tokens 20 >"$dir/broken"
ok "broken UTF-8 in a prompt: U+FFFD" \
    test "$(head -c 7 "$dir/broken")" = $'\xef\xbf\xbd\xef\xbf\xbd('
ok "and valid UTF-8 out" iconv -f UTF-8 -t UTF-8 "$dir/broken"
text --prompt 5 --temperature 3 --tokens 200 >"$dir/wild"
ok "of wild bytes too" iconv -f UTF-8 -t UTF-8 "$dir/wild"
text --prompt 1 --tokens 4 --stats >/dev/null
ok "--stats says what the keys and values take" grep -q \
    "keys and values: 0.0 MiB a rank, 1 text of up to 5 tokens" "$dir/err"

"$top_builddir/plait-convert" --from "$dir/ck" --to "$dir/hf" --format hf \
    >"$dir/err" 2>&1
timeout 240 "$generate" "$dir/hf" "${greedy[@]}" --tokens 30 >"$dir/other" \
    2>"$dir/err"
ok "a Hugging Face directory: the same text" cmp "$dir/greedy" "$dir/other"
ok "plait generate" cmp "$dir/greedy" \
    <("$top_builddir/plait" generate "$dir/ck" "${greedy[@]}" --tokens 30)

# Bytes as a tokenizer.json has them. The one that comes first in the greedy text
# is an added token, as the ends of turns are in a chat's tokenizer.
byte=$(od -An -tu1 -j7 -N1 "$dir/greedy" | xargs)
character=$(head -c 8 "$dir/greedy" | tail -c 1)
cat >"$dir/hf/tokenizer.json" <<END
{"model": {"type": "BPE", "merges": [], "vocab": {$(for i in {0..9}; do
    printf '"%d": %d, ' $i $((i + 48)); done) "Ġ": 32}}, "pre_tokenizer":
 {"type": "ByteLevel", "add_prefix_space": false}, "added_tokens": [
 {"id": 256, "content": "<|endoftext|>", "special": true},
 {"id": $byte, "content": "$character"}]}
END
# turn: what is generated with this tokenizer
turn() {
    timeout 240 "$generate" "$dir/hf" "${greedy[@]}" --tokens 30 2>"$dir/err" |
        tail -n 1
}
ok "the same tokens by a tokenizer.json" cmp <(turn) "$dir/greedy"
echo "{\"eos_token\": {\"content\": \"$character\"}}" \
    >"$dir/hf/tokenizer_config.json"
ok "it ends with the eos_token of tokenizer_config.json" \
    test "$(turn)" = "300 301"
rm "$dir/hf/tokenizer_config.json"
echo "{\"eos_token_id\": [256, $byte]}" >"$dir/hf/generation_config.json"
ok "and with an eos_token_id of generation_config.json" \
    test "$(turn)" = "300 301"
rm "$dir/hf/"{tokenizer,generation_config}.json

# -- plait-eval

# held ARGS...: run plait-eval --json; value KEY: a value of its output
held() {
    timeout 240 "$eval" "$dir/ck" "$@" --json >"$dir/json" 2>"$dir/err"
}
value() {
    sed -n "s/.*\"$1\":\([0-9.e+-]*\).*/\1/p" "$dir/json"
}
# within A B TOLERANCE
within() {
    awk -v a="$1" -v b="$2" -v t="$3" \
        'BEGIN { d = a > b ? a - b : b - a; exit !(a > 0 && d <= t * b) }'
}

held "$val"
want=$(sed -n 's/.*"val_loss":\([0-9.]*\).*/\1/p' "$dir/metrics" | tail -n 1)
ok "the loss of training ($want)" within "$(value loss)" "$want" 1e-5
ok "of all tokens" test "$(value tokens)" = 512
held "$dir/short" --window 32
whole=$(value loss)
held "$dir/short" --window 32 --stride 8
ok "windows that overlap predict each token once" test "$(value tokens)" = 537
ok "and better" awk -v a="$(value loss)" -v b="$whole" 'BEGIN { exit !(a < b) }'
ok "bits per byte" within "$(value bits_per_byte)" \
    "$(awk -v a="$(value loss)" 'BEGIN { printf "%.9g", a / log(2) }')" 1e-6
held "$dir/short.data"
ok "a folder of plait-prep" test "$(value tokens)" -gt 0
for layout in ${mpi:+4:2:2:1:1 2:1:1:1:2 2:1:1:2:1}; do
    IFS=: read -r size tp pp cp dp <<<"$layout"
    timeout 240 sh "$mpirun" "$size" "$eval" "$dir/ck" "$val" --json \
        --set "parallel.tp=$tp" --set "parallel.pp=$pp" \
        --set "parallel.cp=$cp" --set "parallel.dp=$dp" >"$dir/json" \
        2>"$dir/err"
    ok "tp $tp, pp $pp, cp $cp, dp $dp: the same loss" \
        within "$(value loss)" "$want" 1e-5
done

# Logits so large that e to the power of the loss is infinite.
if command -v python3 >/dev/null; then
    python3 - "$top_srcdir/tests/lib" "$dir/hf" <<'END' || give_up hf
import struct, sys
sys.path.insert(0, sys.argv[1])
import hf
path = sys.argv[2]
tensors = []
for name, (shape, dtype, data) in hf.read(path).items():
    if name == "lm_head.weight":
        data = struct.unpack(f"<{len(data) // 4}f", data)
        data = struct.pack(f"<{len(data)}f", *(1e6 * x for x in data))
    tensors.append((name, shape, data))
hf.write_file(path + "/model.safetensors", tensors, dtype)
END
    timeout 240 "$eval" "$dir/hf" "$dir/short" --json >"$dir/json" 2>"$dir/err"
    ok "a loss of $(value loss): JSON all the same" python3 -c '
import json, sys
def refuse(x):
    raise ValueError(x)
got = json.load(open(sys.argv[1]), parse_constant=refuse)
assert got["loss"] > 710 and got["perplexity"] is None, got' "$dir/json"
fi

# -- wrong input

printf 'x%.0s' $(seq 65) >"$dir/65"
printf x >"$dir/one"
: >"$dir/empty"
mkdir "$dir/nothing"
"$top_builddir/plait-train" "$dir/c.yaml" --set model.vocab=300 \
    --set checkpoint.dir="$dir/more" --set train.steps=1 \
    --set train.eval_every=0 --set checkpoint.every=1 >"$dir/err" 2>&1 ||
    give_up "a larger vocabulary"
refused 2 'DIR is missing; usage' "$generate"
refused 2 "unexpected argument 'more'; usage" \
    "$generate" "$dir/ck" more --prompt 1
refused 2 '--prompt TEXT' "$generate" "$dir/ck"
refused 2 empty "$generate" "$dir/ck" --prompt ""
refused 2 'top-p .*0 to 1' "$generate" "$dir/ck" --prompt 1 --top-p 2
refused 2 'top-p .*above 0' "$generate" "$dir/ck" --prompt 1 --top-p 0
refused 2 'temperature .*-1' "$generate" "$dir/ck" --prompt 1 --temperature -1
refused 2 'temperature .*nan' "$generate" "$dir/ck" --prompt 1 --temperature nan
refused 2 top-k "$generate" "$dir/ck" --prompt 1 --top-k 0
refused 2 tokens "$generate" "$dir/ck" --prompt 1 --tokens 1e3
refused 2 seed "$generate" "$dir/ck" --prompt 1 --seed x
refused 2 device "$generate" "$dir/ck" --prompt 1 --device tpu
refused 2 'unknown option' "$generate" "$dir/ck" --frequency 1
refused 1 'No such file' "$generate" "$dir/nowhere" --prompt 1
refused 1 neither "$generate" "$dir/nothing" --prompt 1
refused 1 '65 tokens.*64' "$generate" "$dir/ck" --prompt "$(cat "$dir/65")"
refused 1 'prompt 2 has 65' "$generate" "$dir/ck" --prompt 1 \
    --prompt "$(cat "$dir/65")"
refused 1 tokenizer "$generate" "$dir/more" --prompt 1
refused 1 tokenizer "$generate" "$dir/ck" --prompt 1 --tokenizer word
refused 1 no/such "$generate" "$dir/ck" --prompt 1 --tokenizer bpe:no/such
refused 1 parallel "$generate" "$dir/ck" --prompt 1 --set parallel.tpp=2
refused 1 model.hidden "$generate" "$dir/ck" --prompt 1 --set model.hidden=128
refused 2 'FILE is missing; usage' "$eval" "$dir/ck"
refused 2 stride "$eval" "$dir/ck" "$dir/short" --stride 0
refused 1 'stride 33' "$eval" "$dir/ck" "$dir/short" --window 32 --stride 33
refused 1 'window 65' "$eval" "$dir/ck" "$dir/short" --window 65
refused 1 'No such file' "$eval" "$dir/ck" "$dir/nowhere"
refused 1 'two tokens' "$eval" "$dir/ck" "$dir/empty"
refused 1 'two tokens' "$eval" "$dir/ck" "$dir/one"
refused 1 tokenizer "$eval" "$dir/more" "$dir/short"
refused 1 c.bin "$eval" "$dir/ck" "$dir/c.bin"
echo "1..$n"
