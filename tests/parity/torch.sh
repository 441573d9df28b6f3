#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Loss and gradients against PyTorch (torch_check.py).
python=${PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import numpy' 2>/dev/null; then
	echo "1..0 # SKIP no python3 with numpy and torch"
	exit 0
fi
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
for family in gpt2 llama; do
	for experts in "0 0" "4 0" "4 0.75"; do
		"$top_builddir/tests/parity/dump_grads" $family $experts \
			> "$dir/$family.$experts" || exit 99
	done
done
"$top_builddir/tests/parity/dump_grads" first 4 0 > "$dir/first" || exit 99
for model in "gpt2 0 0" "llama 0 0" "llama 4 0.75" "first 4 0"; do
	"$top_builddir/tests/parity/dump_grads" $model 0.3 \
		> "$dir/mtp.$model" || exit 99
done
OMP_NUM_THREADS=1 "$python" "$top_srcdir/tests/parity/torch_check.py" \
	"$dir"/*
