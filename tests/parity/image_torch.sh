#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Image models against PyTorch (image_torch.py).
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import numpy' 2>/dev/null ||
    { echo "1..0 # SKIP no python3 with numpy and torch"; exit 0; }
OMP_NUM_THREADS=1 exec "$python" -B "$top_srcdir/tests/parity/image_torch.py" \
    "$top_builddir/plait-train"
