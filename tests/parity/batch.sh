#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
command -v python3 >/dev/null ||
    { echo "1..0 # SKIP no python3"; exit 0; }
exec python3 -B "$top_srcdir/tests/parity/batch.py" \
    --train "$top_builddir/plait-train"
