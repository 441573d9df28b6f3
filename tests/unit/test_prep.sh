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
refused 2 "'word' must be byte, spm:FILE or bpe:FILE" "$tmp/text" --out "$tmp/x" -t word
refused 1 "spm:" "$tmp/text" --out "$tmp/x" -t spm:/nonexistent
refused 2 "\-\-out DIR" "$tmp/text"
refused 2 "at least one text" --out "$tmp/x"
refused 2 "unrecognized option" --bogus
if [ -w /dev/full ]; then
    mkdir "$tmp/full" && ln -s /dev/full "$tmp/full/train.bin.tmp"
    refused 1 "train.bin.tmp: cannot write: No space left on device" \
        "$tmp/text" --out "$tmp/full"
fi
echo "1..$n"
