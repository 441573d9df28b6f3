#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ./check-gpu with the emulated GPU, each part of it small, and the page that it
# writes.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset CUDA_VISIBLE_DEVICES

# ends STATUS WORDS ARGUMENT..: whether check-gpu exits with STATUS, and its
# first line has WORDS
ends()
{
	want=$1 words=$2
	shift 2
	(cd "$tmp" && "$top_srcdir/check-gpu" "$@") >"$tmp/said" 2>&1
	[ $? = "$want" ] && head -n 1 "$tmp/said" | grep -q -- "$words"
	check "check-gpu $*: $words" $? || sed 's/^/# /' "$tmp/said"
}

ends 2 'unknown argument --nothing' --nothing
ends 2 '--minutes x: must be a whole number' --minutes x
ends 2 'names no build folder' --emulated --build "$tmp"
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
	ends 1 'no GPU: no driver of NVIDIA: libcuda.so.1' --build "$tmp/b"
	[ "$(wc -l <"$tmp/said")" = 1 ] && [ ! -e "$tmp/b" ]
	check "in one line, and nothing is built" $?
fi

# page WORDS..: whether the newest page has all of these
page()
{
	for words; do
		grep -q -- "$words" "$tmp/out/gpu.md" || {
			echo "# no '$words' in the page"
			return 1
		}
	done
}

cd "$tmp" || exit 1
"$top_srcdir/check-gpu" --emulated --build "$top_builddir" --out "$tmp/out" \
	>"$tmp/said" 2>&1
status=$?
[ $status = 0 ] && grep -q '^The page to mail: .*/gpu.md' "$tmp/said"
check "check-gpu --emulated passes" $?
[ $status = 0 ] || sed 's/^/# /' "$tmp/said"
page '^# Plait on emulated GPU' '^| operations | passed |' \
	'^| gpt2 fp32 | passed | 2 steps, losses off by' \
	'^| compute-sanitizer racecheck | skipped' '^| GPU 0 | emulated GPU' \
	'^| several GPUs | skipped | one is visible' '^| 8B SwiGLU backward |' \
	'times and rates mean nothing'
check "its page says what passed, what was skipped and what was measured" $?
python3 - "$tmp/out/gpu.json" <<'END'
import json
import sys

page = json.load(open(sys.argv[1]))
results = {c["name"]: c["result"] for c in page["checks"]}
assert results["operations"] == results["measurements"] == "passed", results
assert page["losses"]["gpt2 fp32"] <= 1e-3
kernels = [t for t in page["tables"] if t["columns"][0] == "kernel, bf16"]
assert len(kernels) == 1 and len(kernels[0]["rows"]) > 30
assert len(page["types"]) >= 10 and page["gpus"][0]["busid"]
END
check "and gpu.json the same for programs" $?

# A GPU that does not work, and figures that are below their targets.
EMULATED_GPU=broken "$top_srcdir/check-gpu" --emulated --build \
	"$top_builddir" --out "$tmp/out" >"$tmp/said" 2>&1
[ $? = 1 ] && page '^| environment | \*\*failed\*\* | .*not yet initialized'
check "a GPU that cannot be used fails, with the reason" $?
python3 -B - "$top_srcdir/tests/gpu" <<'END'
import sys

sys.path.insert(0, sys.argv[1])
import gpu_page

text = """Ceilings
| kernel, bf16 | median us | spread | rate | of ceiling |
|---|---|---|---|---|
| 124M LayerNorm backward | 9.0 | 1.0 % | 5.0 GB/s | 40 % |
| 124M linear, fc | 9.0 | 1.0 % | 5.0 TFLOP/s | 95 % |

| target | wanted | measured | |
|---|---|---|---|
| 8B-blocks, MFU against the data sheet, % | 60 | 41 | not met |
"""
sheet = {"type": "h100", "memory_bw": 3e12, "flops16": 1e15}
low = gpu_page.below({"gpus": [{"sheet": sheet}], "emulated": False,
                      "ceilings": {"copy": 1.5e12, "product": 9e14},
                      "tables": gpu_page.read_tables(text)})
assert [row[0] for row in low] == [
    "copy, of the data sheet's memory rate, %",
    "124M LayerNorm backward, of ceiling, %",
    "8B-blocks, MFU against the data sheet, %"], low
assert "sums of its columns" in low[1][3]
END
check "what is under its target is named, with the likely cause" $?
echo "1..$n"
