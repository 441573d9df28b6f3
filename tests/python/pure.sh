#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The package plait without torch, with nothing in its environment: the launch
# contract, groups, plan() and estimate(), checkpoints, metrics.
exec_python() {
    for python in python3 /usr/bin/python3; do
        python=$(command -v $python) || continue
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
            continue
        "$python" -c 'import numpy' 2>/dev/null && break
    done
    [ -n "$python" ] || { echo "1..0 # SKIP no python3"; exit 0; }
    exec env -i PATH=/usr/bin:/bin TMPDIR="${TMPDIR:-/tmp}" OMP_NUM_THREADS=1 \
        PYTHONPATH="$top_srcdir/python" PYTHONDONTWRITEBYTECODE=1 \
        PLAIT_COMMAND="$top_builddir/plait" \
        "$python" -B -W error "$top_srcdir/tests/python/pure.py" \
        "$top_srcdir" "$top_builddir"
}
exec_python
