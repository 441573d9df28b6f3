#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Image models in many layouts against one process (image.py).
command -v python3 >/dev/null && command -v mpirun >/dev/null ||
    { echo "1..0 # SKIP no python3 or no mpirun"; exit 0; }
exec python3 -B "$top_srcdir/tests/parity/image.py" \
    "$top_builddir/plait-train"
