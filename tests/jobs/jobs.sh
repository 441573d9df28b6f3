#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random whole jobs: every run of a job, in whatever layout, over whatever
# transport and resumed from whatever other, trains the same. In the test suite
# the first seeds, as many as fit into a minute, or into 20 s in the quick tier;
# SEEDS=A-B: those of make check-jobs. FAULTS=yes: with a fault in each job.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
"$top_builddir/plait-train" --version >/dev/null 2>&1 ||
    { echo "1..0 # SKIP plait-train does not start"; exit 0; }
. "$top_srcdir/tests/lib/tier.sh"
[ -n "${SEEDS:-}" ] || { all_tier && seconds=60; } || seconds=20
export OMP_NUM_THREADS=1
[ -n "${FAULTS:-}" ] && what=--faults || what=--own
python3 -B "$top_srcdir/tests/jobs/jobs.py" --build "$top_builddir" $what \
    --seeds "${SEEDS:-1-40}" --jobs "${JOBS:-2}" \
    ${seconds:+--seconds "$seconds"}
