#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every layout trains to the same result when srun places and starts the ranks.
# PARITY: options of parity.py; unset: a few layouts, empty: all.
[ -x "$top_builddir/plait-train" ] && [ -f "$top_srcdir/tests/parity/parity.py" ] &&
    grep -q 'define HAVE_MPI' "$top_builddir/config.h" &&
    command -v python3 >/dev/null ||
    { echo "1..0 # SKIP no plait-train, MPI or python3"; exit 0; }
. "$top_srcdir/tests/cluster/tap.sh"
python3 -B "$top_srcdir/tests/parity/parity.py" --launcher srun \
    ${PARITY---quick} --train "$top_builddir/plait-train"
