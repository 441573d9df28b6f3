#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What surrounds the kernels, on the emulated GPU; and GPUs that are not there,
# do not work or are too old.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

TEST_FOLDER=$tmp "$top_builddir/tests/gpu/emulated/test_runtime" >"$tmp/out"
status=$?
sed 's/^\(not \)\{0,1\}ok/# &/; /^1\.\./d' "$tmp/out"
check "plans and recordings" $status

"$top_builddir/plait-prep" "$top_srcdir/LICENSE" --out "$tmp/data" \
	>/dev/null || exit 99
cat >"$tmp/job.yaml" <<-END
	model: {family: gpt2, layers: 1, hidden: 16, heads: 1, vocab: 257, seq_len: 8}
	data: {train: "$tmp/data/train.bin"}
	train: {steps: 1, global_batch: 1, micro_batch: 1}
END

# with GPU DEVICE CODE WORDS: plait-train there ends so and says this
with()
{
	EMULATED_GPU=$1 "$top_builddir/tests/gpu/emulated/plait-train" "$tmp/job.yaml" \
		--resume none --device "$2" >"$tmp/out" 2>&1
	[ $? = "$3" ] && grep -qF -- "$4" "$tmp/out"
	check "a GPU that is $1, --device $2" $?
}

with fine auto 0 'step'
with none auto 0 'step'
with none cuda 1 '--device cuda: no CUDA-capable device is detected'
with broken auto 1 \
	'a GPU is there and cannot be used: system not yet initialized'
with broken cpu 0 'step'
with old auto 1 'compiled for compute capability 8.0 and up'
echo "1..$n"
