#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of local SGD runs, and each way sends the bytes of its meetings;
# what it finds out about losses takes longer.
. "$top_srcdir/tests/lib/check.sh"
command -v mpirun >/dev/null && command -v python3 >/dev/null ||
    { echo "1..0 # SKIP needs mpirun and python3"; exit 0; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm_rsh_agent=
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
export OMPI_MCA_btl_vader_single_copy_mechanism OMPI_MCA_plm_rsh_agent
timeout 240 python3 -B "$top_srcdir/examples/studies/local_sgd.py" --quick \
    --train "$top_builddir/plait-train" --prep "$top_builddir/plait-prep" \
    --out "$tmp" >"$tmp/out" 2>&1 </dev/null
rc=$?
sed 's/^/# /' "$tmp/out"
check "every way sends the bytes of its meetings" $rc
grep -q '^| local SGD .* 0.1250 |$' "$tmp/out"
check "local SGD with H = 8 an eighth of the small batch's" $?
grep -q '>DiLoCo</text>' "$tmp/local_sgd.svg"
check "and a plot is drawn" $?
echo "1..$n"
