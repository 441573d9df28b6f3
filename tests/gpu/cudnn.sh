#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every op against ref, and a training, with the own attention and cuDNN's.
. "$top_srcdir/tests/gpu/gpu.sh"

if ! grep -q 'define HAVE_CUDNN 1' "$top_builddir/config.h"; then
	echo "1..0 # SKIP configured without cuDNN"
	exit 0
fi

for who in own cudnn; do
	PLAIT_ATTENTION=$who "$top_builddir/tests/unit/test_ops_cuda" \
		>"$work/ops" 2>&1
	status=$?
	grep -A 5 '^not ok' "$work/ops" | sed 's/^/# /'
	report $status "all ops as ref, attention: $who"
done

plait-prep "$top_srcdir/LICENSE" --out "$work/data" >/dev/null || exit 99
cat >"$work/config.yaml" <<-END
	model: {family: llama, layers: 4, hidden: 256, heads: 4, kv_heads: 2, vocab: 257, seq_len: 128}
	data: {train: "$work/data/train.bin", val: "$work/data/val.bin"}
	train: {steps: 10, global_batch: 8, micro_batch: 2, precision: bf16}
END
for who in own cudnn; do
	PLAIT_ATTENTION=$who plait-train "$work/config.yaml" --device cuda \
		--resume none --metrics "$work/$who" >"$work/out" 2>&1 ||
		sed 's/^/# /' "$work/out"
done
agree "$work/cudnn" "$work/own" 1e-2
report $? "a training with cuDNN's attention near one with the own"
PLAIT_ATTENTION=other plait-train "$work/config.yaml" --device cuda \
	--resume none >"$work/out" 2>&1
[ $? -eq 1 ] && grep -q "PLAIT_ATTENTION is 'other'" "$work/out"
report $? "another word is refused"
echo "1..$count"
