#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Injects faults at random moments into trainings, and compares the results with
# an undisturbed run. FAULTS=300 LAYOUTS=12: the numbers that make check-faults
# draws at random. TABLE=FILE notes each fault; a later start with the same SEED
# resumes after them. KINDS=hang or KINDS=SIGKILL,link: only faults with such
# names.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
"$top_builddir/plait-train" --version >/dev/null 2>&1 ||
    { echo "1..0 # SKIP plait-train does not start"; exit 0; }
mpirun=$top_srcdir/tests/lib/mpirun.sh
grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h" &&
    sh "$mpirun" 2 true >/dev/null 2>&1 || mpirun= layouts=1
# In the test suite, as many faults as fit into a minute, or into 20 s in the
# quick tier: the machine may be busy or sanitizers slow.
. "$top_srcdir/tests/lib/tier.sh"
[ -n "${FAULTS:-}" ] || { all_tier && SECONDS_MOST=60; } || SECONDS_MOST=20
work=$(mktemp -d "${TMPDIR:-/tmp}/plait-faults.XXXXXX") || exit 99
shm=$(mktemp -d /dev/shm/plait.XXXXXX) || exit 99
trap 'rm -rf "$work" "$shm"' EXIT
# Remove the files that a killed mpirun leaves behind, too.
export TMPDIR=$work OMPI_MCA_btl_vader_backing_directory=$shm
export OMP_NUM_THREADS=1
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
python3 -B "$top_srcdir/tests/faults/faults.py" \
    --train "$top_builddir/plait-train" --work "$work" \
    --plait "$top_builddir/plait" ${mpirun:+--mpirun "$mpirun"} \
    --layouts "${LAYOUTS:-${layouts:-2}}" \
    --preload "$top_builddir/tests/faults/.libs/fault_calls.so" \
    --count "${FAULTS:-20}" ${FAULTS:+--random} ${SEED:+--seed "$SEED"} \
    ${TABLE:+--table "$TABLE"} ${SECONDS_MOST:+--seconds "$SECONDS_MOST"} \
    ${KINDS:+--kinds "$KINDS"}
