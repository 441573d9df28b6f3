#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every op against ref, and trainings, with Plait's own attention and
# convolutions and with cuDNN's.
. "$top_srcdir/tests/gpu/gpu.sh"

if ! grep -q 'define HAVE_CUDNN 1' "$top_builddir/config.h"; then
	echo "1..0 # SKIP configured without cuDNN"
	exit 0
fi

for who in own cudnn; do
	PLAIT_ATTENTION=$who PLAIT_CONVOLUTION=$who \
		"$top_builddir/tests/unit/test_ops_cuda" >"$work/ops" 2>&1
	status=$?
	grep -A 5 '^not ok' "$work/ops" | sed 's/^/# /'
	report $status "all ops as ref, attention and convolutions: $who"
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

PYTHONPATH=$top_srcdir/tests/lib python3 -B -c 'import sys, images
images.write_images(sys.argv[1], 256, (3, 32, 32), 10)' "$work/train" || exit 99
cat >"$work/images.yaml" <<-END
	model: {family: resnet, depth: 20, width: 16, classes: 10, input: [3, 32, 32]}
	data: {train: "$work/train-images-idx4-ubyte", format: idx}
	train: {steps: 10, global_batch: 64, micro_batch: 64}
	optim: {name: sgd, lr: 0.05}
END
for who in own cudnn cudnn; do
	[ ! -e "$work/c-$who" ] || mv "$work/c-$who" "$work/c-again"
	PLAIT_CONVOLUTION=$who plait-train "$work/images.yaml" --device cuda \
		--resume none --metrics "$work/c-$who" >"$work/out" 2>&1 ||
		sed 's/^/# /' "$work/out"
done
agree "$work/c-cudnn" "$work/c-own" 1e-4
report $? "a ResNet with cuDNN's convolutions near one with the own"
losses "$work/c-cudnn" >"$work/a"
losses "$work/c-again" >"$work/b"
cmp -s "$work/a" "$work/b"
report $? "and the same in a second run"
PLAIT_CONVOLUTION=other plait-train "$work/images.yaml" --device cuda \
	--resume none >"$work/out" 2>&1
[ $? -eq 1 ] && grep -q "PLAIT_CONVOLUTION is 'other'" "$work/out"
report $? "another word is refused"
echo "1..$count"
