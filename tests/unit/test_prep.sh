#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plait-prep: text in, shards and a piece of YAML out; bad input gives one line.
prep=$top_builddir/plait-prep
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
n=0

ok() { # ok STATUS NAME
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}

# refused EXPECTED-STATUS TEXT-OF-THE-ERROR ARGS...
refused() {
    want=$1 says=$2
    shift 2
    "$prep" "$@" >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ "$got" -eq "$want" ] && grep -q -e "$says" "$tmp/err" &&
        [ ! -s "$tmp/out" ] && ! ls "$tmp"/*/*.tmp >/dev/null 2>&1
    ok $? "exit $got: $(head -1 "$tmp/err")"
}

seq 1 2000 >"$tmp/text"
size=$(wc -c <"$tmp/text")
"$prep" "$tmp/text" --out "$tmp/d/e" >"$tmp/out" 2>"$tmp/err"
ok $? "makes the directory and the shards"
[ ! -s "$tmp/err" ] && grep -q "^  vocab: 257$" "$tmp/out" &&
    grep -q "^  train: $tmp/d/e/train.bin$" "$tmp/out"
ok $? "prints what goes into the YAML"
total=$(($(wc -c <"$tmp/d/e/train.bin") + $(wc -c <"$tmp/d/e/val.bin")))
[ "$total" -eq $((2 * 64 + 2 * (size + 2))) ]
ok $? "every byte and an end of text for each part are there"
# Tokens are 16 bits wide: without every second byte they are the text.
tail -c +65 "$tmp/d/e/train.bin" | tr -d '\000\001' >"$tmp/back"
tail -c +65 "$tmp/d/e/val.bin" | tr -d '\000\001' >>"$tmp/back"
cmp -s "$tmp/text" "$tmp/back"
ok $? "the tokens are the text"
cp "$tmp/d/e/train.bin" "$tmp/before"
"$prep" "$tmp/text" --out "$tmp/d/e" >/dev/null &&
    cmp -s "$tmp/before" "$tmp/d/e/train.bin"
ok $? "a second run gives the same"
refused 1 "nothere: No such file" "$tmp/nothere" --out "$tmp/d/e"
cmp -s "$tmp/before" "$tmp/d/e/train.bin"
ok $? "a failed run leaves the shards alone"
: >"$tmp/empty"
refused 1 "empty: an empty file" "$tmp/empty" --out "$tmp/x"
refused 1 "is inside of the input folder" "$tmp" --out "$tmp/x"
refused 1 "cannot make the directory: Not a directory" "$tmp/text" \
    --out "$tmp/text/x"
refused 1 "cannot make the directory: File exists\|Not a directory" \
    "$tmp/text" --out "$tmp/empty"
refused 2 "'word' must be byte, bpe:FILE" "$tmp/text" --out "$tmp/x" -t word
refused 1 "spm:" "$tmp/text" --out "$tmp/x" -t spm:/nonexistent
refused 2 "\-\-out DIR" "$tmp/text"
refused 2 "at least one text" --out "$tmp/x"
refused 2 "unrecognized option" --bogus
# The end of a text: the model's own token, whatever else its tokenizer has.
mkdir "$tmp/chat"
cp "$top_srcdir/tests/fixtures/tokenizer/smollm.json" "$tmp/chat/tokenizer.json"
ends() { # ends ID NAME ARGS...: prepared so, texts end with this token
    id=$1 name=$2
    shift 2
    "$prep" "$tmp/text" --out "$tmp/ends" -t bpe:"$tmp/chat" "$@" \
        >"$tmp/out" 2>"$tmp/err" &&
        grep -qxF "# each document ends with token $id, $name" "$tmp/out" &&
        [ "$(tail -c 2 "$tmp/ends/train.bin" | od -An -tu2 | tr -d ' ')" = \
            "$id" ] && grep -q "\"end\": $id" "$tmp/ends/prep.json"
    ok $? "texts end with $id, $name $*"
}
ends 0 '<|endoftext|>'
echo '{"eos_token_id": [2, 0]}' >"$tmp/chat/generation_config.json"
ends 2 '<|im_end|>'
echo '{"eos_token_id": 1}' >"$tmp/chat/config.json"
ends 2 '<|im_end|>'
rm "$tmp/chat/generation_config.json"
ends 1 '<|im_start|>'
# transformers writes a length that no integer holds.
echo '{"model_max_length": 1000000000000000019884624838656,
    "eos_token": {"content": "<|im_end|>"}}' >"$tmp/chat/tokenizer_config.json"
ends 2 '<|im_end|>'
ends 1 '<|im_start|>' --end-token '<|im_start|>'
refused 1 "'two words' is not one token" "$tmp/text" --out "$tmp/x" \
    -t bpe:"$tmp/chat" --end-token 'two words'
for name in "$tmp/chat" "$tmp/chat/tokenizer.json"; do
    "$prep" "$tmp/text" --out "$tmp/alone" -t "$name" >/dev/null &&
        "$prep" "$tmp/text" --out "$tmp/ends" -t bpe:"$name" >/dev/null &&
        cmp -s "$tmp/alone/train.bin" "$tmp/ends/train.bin"
    ok $? "-t ${name#"$tmp/"} is bpe:"
done
refused 1 "spm:" "$tmp/text" --out "$tmp/x" -t "$tmp/tokenizer.model"
# A tokenizer that has no end of a text is asked for one.
sed 's/"<|endoftext|>"/"<|begin|>"/g' "$tmp/chat/tokenizer.json" >"$tmp/no.json"
refused 1 "no token ends a text: .* name one with --end-token TEXT" \
    "$tmp/text" --out "$tmp/x" -t "$tmp/no.json"
"$prep" "$tmp/text" --out "$tmp/ends" -t "$tmp/no.json" --end-token '<|im_end|>' \
    >"$tmp/out" && grep -q "^# each document ends with token 2, <|im_end|>" "$tmp/out"
ok $? "and takes it"
refused 2 "end-token needs" "$tmp/text" --out "$tmp/x" --end-token x
if [ -w /dev/full ]; then
    mkdir "$tmp/full" && ln -s /dev/full "$tmp/full/train.bin.tmp"
    refused 1 "train.bin.tmp: cannot write: No space left on device" \
        "$tmp/text" --out "$tmp/full"
fi
echo "1..$n"
