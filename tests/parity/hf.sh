#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models of Hugging Face's against transformers (hf_check.py), which few
# systems package: HF_PYTHON names a python3 that has it, with torch 2.
python=${HF_PYTHON:-python3}
if ! "$python" -c 'import safetensors, torch, transformers
assert int(torch.__version__[0]) > 1' 2>/dev/null; then
    echo "1..0 # SKIP no python3 with transformers, safetensors and torch 2"
    exit 0
fi
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
OMP_NUM_THREADS=1 TRANSFORMERS_OFFLINE=1 \
    "$python" "$top_srcdir/tests/parity/hf_check.py" "$dir" "$@"
