#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of Megatron-LM against Megatron-core (megatron_check.py).
# MEGATRON_PYTHON: a Python that has megatron.core and torch 2.
python=${MEGATRON_PYTHON:-python3}
if ! "$python" -c 'import torch, megatron.core
assert int(torch.__version__[0]) > 1' 2>/dev/null; then
    echo "1..0 # SKIP no python3 with megatron-core and torch 2"
    exit 0
fi
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
export OMP_NUM_THREADS=1
"$python" -W ignore "$top_srcdir/tests/parity/megatron_check.py" "$dir" "$@"
