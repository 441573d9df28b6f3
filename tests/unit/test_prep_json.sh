#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-prep takes JSON lines as Python writes them, and says which it leaves
# out: byte order marks, numbers that JSON does not have, null texts.
prep=$top_builddir/plait-prep
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
n=0
check() {
    n=$((n + 1))
    [ "$2" = 0 ] && echo "ok $n - $1" || echo "not ok $n - $1"
}
# same A B: the same tokens
same() { cmp -s "$tmp/o/$1/train.bin" "$tmp/o/$2/train.bin"; }
# prepare NAME FILE ARGS...
prepare() {
    local name=$1 file=$2
    shift 2
    "$prep" "$tmp/$file" --out "$tmp/o/$name" "$@" >"$tmp/out" 2>"$tmp/err"
}

printf '{"text": "one"}\n{"text": "two"}\n' >"$tmp/plain.jsonl"
prepare plain plain.jsonl
check "two lines" $?
printf '\357\273\277{"text": "one"}\n{"text": "two"}\n' >"$tmp/mark.jsonl"
prepare mark mark.jsonl && same plain mark
check "a byte order mark before them" $?
printf 'some text\nand more\n' >"$tmp/text"
printf '\357\273\277some text\nand more\n' >"$tmp/marked"
prepare text text && prepare marked marked && same text marked
check "and before a text: no token" $?

cat >"$tmp/numbers.jsonl" <<'END'
{"a": NaN, "b": [Infinity, -Infinity], "text": "one", "c": {"d": 1e400}}
{"n": -1E+999, "text": "two", "big": 123456789012345678901234567890}
END
prepare numbers numbers.jsonl && same plain numbers && [ ! -s "$tmp/err" ]
check "NaN, infinities and numbers beyond a double in other fields" $?
printf '{"a": NaN, "text": "NaN is \\"Infinity\\" 1e400"}\n' >"$tmp/inside.jsonl"
printf '{"text": "NaN is \\"Infinity\\" 1e400"}\n' >"$tmp/outside.jsonl"
prepare inside inside.jsonl && prepare outside outside.jsonl &&
    same inside outside
check "which are text inside of a string" $?
for wrong in 'NaNs' '01' '1.' '.5' '-' '1e' '+1' 'Inf' '--1' '-NaN' '1.NaN' \
    '1e-NaN'; do
    printf '{"a": %s, "text": "one"}\n' "$wrong" >"$tmp/wrong.jsonl"
    if command -v python3 >/dev/null; then
        python3 -c 'import json, sys; json.loads(open(sys.argv[1]).read())' \
            "$tmp/wrong.jsonl" 2>/dev/null
        [ $? = 1 ]
        check "Python refuses $wrong" $?
    fi
    ! prepare wrong wrong.jsonl && grep -q "line 1: not JSON" "$tmp/err"
    check "and so does plait-prep: $wrong" $?
done

printf '{"text": "one"}\n{"text": null}\n{"text": "two"}\n' >"$tmp/null.jsonl"
prepare null null.jsonl && same plain null &&
    grep -q "null.jsonl: line 2 is left out: its text is null" "$tmp/err" &&
    grep -q "^# 1 line gave no text and was left out" "$tmp/out"
check "a null text is none, and is counted" $?
printf '{"prompt": null, "completion": "one"}\n' >"$tmp/p.jsonl"
prepare prompt p.jsonl --prompt-field prompt
check "a null prompt is none" $?

{
    printf '{"text": "one"}\nnot JSON\n{"no": 1}\n{"text": 5}\n{"text":\n'
    printf '[1]\n{"text": null}\n{"text": "two"}\n"'
} >"$tmp/bad.jsonl"
! prepare bad bad.jsonl && [ "$(wc -l <"$tmp/err")" = 1 ] &&
    grep -q "line 2: not JSON: .*; --skip-bad leaves such lines out" "$tmp/err"
check "a bad line ends the run, which says how not" $?
prepare bad bad.jsonl --skip-bad && same plain bad
check "--skip-bad leaves them out" $?
grep -q "^# 7 lines gave no text and were left out" "$tmp/out" &&
    [ "$(grep -o 'line [0-9]* is left out' "$tmp/err" | tr -dc '0-9 ' |
        tr -s ' ')" = " 2 3 4 5 6 " ] && [ "$(wc -l <"$tmp/err")" = 5 ]
check "says how many, and names the first five" $?
! "$prep" --images "$tmp/x.csv" --out "$tmp/o/i" --skip-bad 2>"$tmp/err" &&
    grep -q "are for texts" "$tmp/err"
check "it is for texts" $?
echo "1..$n"
