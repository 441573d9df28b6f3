#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prompts that bear no loss against PyTorch's ignore_index
# (prompts_check.py); HF_PYTHON as for hf.sh.
python=${HF_PYTHON:-python3}
if ! "$python" -c 'import safetensors, torch, transformers
assert int(torch.__version__[0]) > 1' 2>/dev/null; then
    echo "1..0 # SKIP no python3 with transformers, safetensors and torch 2"
    exit 0
fi
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
OMP_NUM_THREADS=1 TRANSFORMERS_OFFLINE=1 \
    "$python" "$top_srcdir/tests/parity/prompts_check.py" "$dir"
