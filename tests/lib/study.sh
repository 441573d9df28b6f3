# SPDX-License-Identifier: Apache-2.0
# For scripts to source that run the quick version of a study: $tmp/out has
# what it printed, $tmp/NAME.svg its plot. What the study finds out about
# losses takes longer, and is not tested.
. "$top_srcdir/tests/lib/check.sh"
command -v python3 >/dev/null ||
    { echo "1..0 # SKIP needs python3"; exit 0; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm_rsh_agent=
# As in mpirun.sh: Open MPI leaks memory.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export ASAN_OPTIONS OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
export OMPI_MCA_btl_vader_single_copy_mechanism OMPI_MCA_plm_rsh_agent

need_mpirun() {
    command -v mpirun >/dev/null || { echo "1..0 # SKIP needs mpirun"; exit 0; }
}

quick_study() { # name
    timeout 240 "$top_srcdir/examples/studies/run" "$1" --quick \
        --train "$top_builddir/plait-train" --prep "$top_builddir/plait-prep" \
        --jobs 1 --out "$tmp" >"$tmp/out" 2>&1 </dev/null
    rc=$?
    sed 's/^/# /' "$tmp/out"
    check "$1 runs, and what holds by construction holds" $rc
    python3 -c "from xml.dom import minidom as m; m.parse('$tmp/$1.svg')"
    check "it draws a plot" $?
}
