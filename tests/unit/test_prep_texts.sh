#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-prep on compressed texts, folders, JSON lines and in each format; killed
# and resumed; with little memory; wrong texts.
. "$top_srcdir/tests/lib/check.sh"
prep=$top_builddir/plait-prep
fixtures=$top_srcdir/tests/fixtures/tokenizer
bpe=bpe:$fixtures/llama3.json
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/o"

# same A B: whether two folders have the same tokens
same() {
    cmp -s "$tmp/o/$1/train.bin" "$tmp/o/$2/train.bin" &&
        cmp -s "$tmp/o/$1/val.bin" "$tmp/o/$2/val.bin"
}

# ids FOLDER/SET HEADER: the 16-bit tokens of a file after HEADER bytes
ids() { tail -c +$(($2 + 1)) "$tmp/o/$1.bin" | od -An -v -tu2 -w2 | tr -d ' '; }

for i in $(seq 300); do
    cat "$fixtures/text"
    head -c 500 /dev/urandom
    echo "line $i $RANDOM"
done >"$tmp/text"

# -- packed ----------------------------------------------------------------
"$prep" "$tmp/text" --out "$tmp/o/text" -t "$bpe" >/dev/null
check "a text" $?
for pack in "gzip -c" "zstd -qc" "pzstd -qc" "xz -1c"; do
    command -v "${pack%% *}" >/dev/null ||
        { check "${pack%% *} # SKIP not installed" 0; continue; }
    # Two compressed streams in one file are one text.
    { head -c 200000 "$tmp/text" | $pack; tail -c +200001 "$tmp/text" | $pack; } \
        >"$tmp/packed"
    "$prep" "$tmp/packed" --out "$tmp/o/packed" -t "$bpe" >/dev/null &&
        same text packed
    check "packed by ${pack%% *} it has the same tokens" $?
    head -c 100000 "$tmp/packed" >"$tmp/cut-${pack%% *}"
done
taskset -c "$(taskset -cp $$ | sed 's/.*[:,-] *//')" \
    "$prep" "$tmp/text" --out "$tmp/o/one" -t "$bpe" >/dev/null && same text one
check "one core gives the same as all" $?

# -- folders and JSON lines ------------------------------------------------
mkdir -p "$tmp/folder/b/c"
echo "first text" >"$tmp/folder/a.txt"
echo "second text" | gzip -c >"$tmp/folder/b/c/x.gz"
: >"$tmp/folder/b/empty"
echo "hidden" >"$tmp/folder/.hidden"
"$prep" "$tmp/folder" --out "$tmp/o/folder" >/dev/null &&
    ids folder/train 64 | awk '$1 < 256 { printf "%c", $1 }
        $1 == 256 { printf "|" }' >"$tmp/got"
printf 'first text\n|second text\n|' | cmp -s - "$tmp/got"
check "a folder's texts, each with its end" $?
i=0
for word in $(seq 101 145); do
    i=$((i + 1))
    printf '{"id": %d, "text": "no", "body": "w\\u00e9%d\\n"}\n\n' "$i" "$word"
done >"$tmp/docs"
for format in plait llmc megatron; do
    "$prep" "$tmp/docs" --out "$tmp/o/$format" --field body --format $format \
        >/dev/null
    check "JSON lines as $format" $?
done
{ for i in $(seq 101 119) $(seq 121 139) $(seq 141 145); do echo "wé$i|"; done; } |
    tr -d '\n' >"$tmp/want"
ids plait/train 64 | awk '$1 == 10 { next } $1 < 256 { printf "%c", $1 }
    $1 == 256 { printf "|" }' >"$tmp/got"
LC_ALL=C cmp -s "$tmp/want" "$tmp/got"
check "each document with its end, but each twentieth" $?
[ "$(ids plait/val 64 | grep -cx 256)" = 2 ]
check "which are for validation" $?
ids plait/train 64 >"$tmp/plait.ids"
ids llmc/train 1024 | cmp -s - "$tmp/plait.ids" &&
    ids megatron/train 0 | cmp -s - "$tmp/plait.ids"
check "the formats have the same tokens" $?
# MMIDIDX, version 1, type 8, 43 sequences, 44 document bounds, lengths 8...
od -An -v -tu8 -j9 -N8 "$tmp/o/megatron/train.idx" | grep -qx ' *1' &&
    od -An -v -tu1 -j17 -N1 "$tmp/o/megatron/train.idx" | grep -qx ' *8' &&
    [ "$(od -An -v -tu8 -j18 -N16 -w16 "$tmp/o/megatron/train.idx" |
        tr -s ' ')" = " 43 44" ] &&
    [ "$(wc -c <"$tmp/o/megatron/train.idx")" = $((34 + 43 * 12 + 44 * 8)) ] &&
    [ "$(od -An -v -tu4 -j34 -N172 -w4 "$tmp/o/megatron/train.idx" |
        sort -u | tr -d ' ')" = 8 ] &&
    [ "$(od -An -v -tu8 -j$((34 + 172 + 8)) -N8 \
        "$tmp/o/megatron/train.idx" | tr -d ' ')" = 16 ]
check "Megatron's index is as its layout says" $?
python=${MEGATRON_PYTHON:-python3}
if $python -c 'import megatron.core.datasets.indexed_dataset' 2>/dev/null; then
    $python - "$tmp/o/megatron/train" >"$tmp/got" <<'END'
import sys
from megatron.core.datasets.indexed_dataset import IndexedDataset
data = IndexedDataset(sys.argv[1])
for i in range(len(data)):
    print(*data[i], sep="\n")
END
    cmp -s "$tmp/got" "$tmp/plait.ids"
    check "megatron-core reads them" $?
else
    check "megatron-core reads them # SKIP no Python package megatron-core" 0
fi
"$prep" "$tmp/docs" --out "$tmp/o/megatron" --field body >/dev/null &&
    [ ! -e "$tmp/o/megatron/train.idx" ]
check "an index of an older run goes" $?

# -- trained on by its folder ----------------------------------------------
cat >"$tmp/c.yaml" <<END
model: {layers: 1, hidden: 32, heads: 2, vocab: 450, seq_len: 32}
data: {train: "$tmp/o/text", val: "$tmp/o/text"}
train: {steps: 2, global_batch: 4, micro_batch: 4, eval_every: 2, eval_steps: 1}
checkpoint: {dir: "$tmp/ck"}
END
timeout 240 "$top_builddir/plait-train" "$tmp/c.yaml" --device cpu \
    >"$tmp/out" 2>&1
check "data.train is the folder" $?
timeout 240 "$top_builddir/plait-train" "$tmp/c.yaml" --device cpu --sample 8 \
    --sample-prompt "The ranks" 2>&1 | head -n 1 | grep -q "^The ranks"
check "a sample finds the tokenizer there" $?
mv "$tmp/o/text" "$tmp/o/gone"
for from in ck ck/latest; do
    timeout 240 "$top_builddir/plait-generate" "$tmp/$from" --tokens 8 \
        --prompt "The ranks" --device cpu 2>&1 | head -n 1 |
        grep -q "^The ranks"
    check "its checkpoints have it: $from" $?
done
mv "$tmp/o/gone" "$tmp/o/text"
timeout 240 "$top_builddir/plait-train" "$tmp/c.yaml" --device cpu \
    --resume none --set model.vocab=300 2>&1 | grep -q "vocabulary of [0-9]* tokens, but model.vocab"
check "a smaller vocabulary is refused" $?

# -- killed, and gone on; memory -------------------------------------------
for i in $(seq 60); do cat "$tmp/text"; done >"$tmp/long"
"$prep" "$tmp/long" --out "$tmp/o/whole" -t "$bpe" >/dev/null
# Stopped repeatedly, a run is slow enough to be killed in its middle.
killed=1
for round in 1 2 3 4 5; do
    "$prep" "$tmp/long" --out "$tmp/o/killed" -t "$bpe" >/dev/null 2>&1 &
    pid=$!
    for i in $(seq 200); do
        kill -STOP $pid 2>/dev/null || break
        [ -s "$tmp/o/killed/prep.state" ] && break
        sleep 0.05
        kill -CONT $pid
        sleep 0.01
    done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ -s "$tmp/o/killed/prep.state" ] && killed=0 && break
    rm -rf "$tmp/o/killed"
done
[ $killed = 0 ] && [ ! -e "$tmp/o/killed/train.bin" ]
check "killed, it leaves no file under its name" $?
mv "$tmp/long" "$tmp/away"
"$prep" "$tmp/long" --out "$tmp/o/killed" -t "$bpe" >/dev/null 2>&1
[ $? = 1 ] && [ -s "$tmp/o/killed/prep.state" ]
check "without its texts it fails, and keeps what is done" $?
mv "$tmp/away" "$tmp/long"
(trap '' XFSZ && ulimit -f 4 &&
    "$prep" "$tmp/long" --out "$tmp/o/killed" -t "$bpe" >/dev/null 2>"$tmp/err")
[ $? = 1 ] && grep -q 'File too large; finished work is kept' "$tmp/err" &&
    [ -s "$tmp/o/killed/prep.state" ] && [ -s "$tmp/o/killed/train.bin.tmp" ]
check "as it does where it cannot write more" $?
exec 9<>"$tmp/o/killed/val.bin.tmp" && flock 9
"$prep" "$tmp/long" --out "$tmp/o/killed" -t "$bpe" >/dev/null 2>"$tmp/err"
[ $? = 1 ] && grep -q 'val.bin.tmp: another plait-prep is writing it' "$tmp/err" &&
    [ -s "$tmp/o/killed/prep.state" ] && [ -s "$tmp/o/killed/train.bin.tmp" ]
check "... and where a second one finds the other file taken" $?
exec 9>&-
"$prep" "$tmp/long" --out "$tmp/o/killed" -t "$bpe" \
    >/dev/null 2>"$tmp/err" && grep -q 'goes on at' "$tmp/err" &&
    same whole killed && [ -z "$(ls "$tmp/o/killed" | grep -e tmp -e state)" ]
check "it goes on and ends with the same files" $?
most=$(python3 - "$prep" "$tmp/long" "$tmp/o/rss" "$bpe" <<'END'
import resource, subprocess, sys
subprocess.run([sys.argv[1], sys.argv[2], "--out", sys.argv[3], "-t",
                sys.argv[4]], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
END
)
echo "# $(($(wc -c <"$tmp/long") / 1000000)) MB of text in $most MiB"
[ "$most" -lt $((60 + 12 * $(nproc))) ]
check "memory is bounded" $?

# -- what is refused -------------------------------------------------------
# refused STATUS TEXT ARGS...: one line, and nothing is left
refused() {
    local want=$1 says=$2 got
    shift 2
    "$prep" "$@" --out "$tmp/o/x" >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ $got = "$want" ] && [ "$(wc -l <"$tmp/err")" = 1 ] &&
        grep -q -e "^plait-prep: .*$says" "$tmp/err" && [ ! -s "$tmp/out" ] &&
        [ -z "$(ls -A "$tmp/o/x" 2>/dev/null)" ]
    rc=$?
    check "exit $got: $(head -n 1 "$tmp/err" | cut -c 1-150)" $rc
}
# wrong NAME CONTENT: write a file
wrong() { printf "$2" >"$tmp/$1"; }

wrong a.parquet 'PAR1 and so on'
wrong b.bin 'PAR1 and so on'
wrong c.zip 'PK\003\004 and so on'
wrong d.bz2 'BZh91AY&SY'
refused 1 "Parquet is not supported" "$tmp/a.parquet"
refused 1 "Parquet is not supported" "$tmp/b.bin"
refused 1 "a zip archive is not supported" "$tmp/c.zip"
refused 1 "bzip2 is not supported" "$tmp/d.bz2"
printf 'caf\351 \33[1md\351j\340\33[0m vu\r\n\f\t' >"$tmp/latin"
printf '\317\360\350\342\345\362\n' >"$tmp/cyrillic" # as Windows had it
for text in latin cyrillic; do
    "$prep" "$tmp/$text" --out "$tmp/o/$text" >"$tmp/out" 2>&1
    check "a text in another encoding is text: $text" $?
done
for pack in gzip zstd xz; do
    [ -s "$tmp/cut-$pack" ] || continue
    refused 1 "truncated: its $pack data have no end" "$tmp/cut-$pack"
    { head -c 5000 "$tmp/cut-$pack"; head -c 90000 /dev/zero; } >"$tmp/bad-$pack"
    refused 1 "damaged\|truncated" "$tmp/bad-$pack"
done
wrong e.jsonl '{"text": "a"}\n{"text": '
refused 1 "e.jsonl: line 2: not JSON" "$tmp/e.jsonl"
wrong f.jsonl '{"text": "a"}\n\n["text"]\n'
refused 1 "f.jsonl: line 3: expected an object" "$tmp/f.jsonl"
wrong g.jsonl '{"body": "a"}\n'
refused 1 "line 1: has no field 'text'; use --field" "$tmp/g.jsonl"
wrong h.jsonl '{"text": 1}\n'
refused 1 "line 1: field 'text' is not a string" "$tmp/h.jsonl"
wrong i.jsonl '{"text": ""}\n'
refused 1 "no text to train on" "$tmp/i.jsonl"
refused 1 "line 1: not JSON" "$tmp/text" --field text
mkdir "$tmp/none"
refused 1 "the folder contains no text" "$tmp/none"
refused 1 "not a regular file" /dev/null
refused 1 "No such file" "$tmp/text" -t "bpe:$tmp/nothing.json"
refused 1 "not JSON: line 1" "$tmp/text" -t "bpe:$tmp/g.txt$(: >"$tmp/g.txt")"
refused 1 "has no model.vocab\|no JSON" "$tmp/text" -t "bpe:$tmp/g.jsonl"
refused 2 "'hf' must be plait, llmc or megatron" "$tmp/text" --format hf
refused 2 "need the name of a field" "$tmp/text" --field ""
refused 2 "must be byte, bpe:FILE" "$tmp/text" -t gpt2
mkdir -p "$tmp/o/hf"
echo '{}' >"$tmp/o/hf/tokenizer.json"
"$prep" "$tmp/text" --out "$tmp/o/hf" -t "$bpe" >/dev/null 2>"$tmp/err"
[ $? = 1 ] && grep -q "this tokenizer differs from" "$tmp/err" &&
    [ "$(ls "$tmp/o/hf")" = tokenizer.json ]
check "a tokenizer of somebody else is not overwritten" $?
echo "1..$n"
