#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints that torch.distributed.checkpoint and Megatron-core write
# (dcp_check.py). DCP_PYTHON: a Python that has torch 2; with megatron.core its
# torch_dist is written too.
python=${DCP_PYTHON:-${MEGATRON_PYTHON:-python3}}
if ! "$python" -c 'import torch.distributed.checkpoint' 2>/dev/null; then
    echo "1..0 # SKIP no python3 with torch 2"
    exit 0
fi
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
# torch leaves a folder of its compiler.
export OMP_NUM_THREADS=1 TMPDIR="$dir"
"$python" -W ignore "$top_srcdir/tests/parity/dcp_check.py" "$dir" "$@"
