#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docs/performance.py: the page and its plot are what the records say, and take
# what `make bench` has measured.
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/docs" "$tmp/examples/studies"
cp "$top_srcdir"/docs/performance.* "$tmp/docs/" &&
    cp "$top_srcdir/examples/studies/plot.py" "$tmp/examples/studies/" ||
    exit 1
chmod -R u+w "$tmp"

page() {
    python3 -B "$tmp/docs/performance.py" "$@" >"$tmp/out" 2>&1
}

# row WHO SECONDS MIB: what plait-bench writes of one program
row() {
    cat <<END
{"case": "Llama 160M, 2 x 512", "precision": "bf16", "who": "$1",
 "version": "", "seconds": $2, "least": $2, "most": $2, "peak_mib": $3,
 "tokens_per_s": 512, "rounds": 7, "date": "2027-01-02", "commit": "abc1234"}
END
}

page --check
check "page and plot are those of the records" $?
cat >"$tmp/bench.json" <<END
{"processor": "AMD EPYC", "cpu_isa": "avx512bf16", "steps": [
 $(row plait 2.0 700), $(row "PyTorch, compiled" 3.5 1000),
 $(row llm.c null 0)]}
END
sed 's/Llama 160M, 2 x 512/GPT-2 124M, 4 x 64/; s/bf16/fp32/
    s/"seconds": null/"seconds": 7.0/' "$tmp/bench.json" >"$tmp/three.json"
cp -r "$tmp/docs" "$tmp/kept"
page "$tmp/three.json" "AMD Zen 4" && grep -q '>1\.75<' "$tmp/docs/performance.svg" &&
    grep -q '>0\.50<' "$tmp/docs/performance.svg"
check "bars have the speeds of Plait and llm.c over PyTorch's" $?
cp "$tmp"/kept/* "$tmp/docs/"
lines=$(grep -c . "$tmp/docs/performance.json")
new="| Llama 160M, 2 x 512 | bf16 | 512 | 1.75 | 0.70 |"
page "$tmp/bench.json" "AMD Zen 4" &&
    grep -qF "$new" "$tmp/docs/performance.md" &&
    grep -qE '^\| Llama 160M.* 2027-01-02 \| abc1234 \|$' \
        "$tmp/docs/performance.md" &&
    [ "$(grep -c . "$tmp/docs/performance.json")" = "$lines" ] &&
    ! cmp -s "$tmp/docs/performance.svg" "$top_srcdir/docs/performance.svg" &&
    page --check
check "a run replaces the figures of its processor" $?
page "$tmp/bench.json" "AMD Zen 6" &&
    grep -qx "## AMD Zen 6" "$tmp/docs/performance.md" &&
    [ "$(grep -cF "$new" "$tmp/docs/performance.md")" = 2 ] &&
    grep -qF "AMD Zen 6" "$tmp/docs/performance.svg" && page --check
check "a processor that the page lacks gets a heading" $?
sed -i "s/| 1.75 |/| 1.76 |/" "$tmp/docs/performance.md"
page --check
[ $? = 1 ] && page && page --check
check "a figure that was changed by hand is noticed, and mended" $?
echo '{"processor": "", "cpu_isa": "", "steps": []}' >"$tmp/bench.json"
page "$tmp/bench.json" "AMD Zen 4"
[ $? = 1 ] && grep -q "no job that Plait and PyTorch both finished" "$tmp/out"
check "a run without results is refused" $?
echo "1..$n"
