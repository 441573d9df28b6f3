# SPDX-License-Identifier: Apache-2.0
# For the tests of the emulated GPU: sourced, not run. Builds the module, or
# says why the test is skipped.

# skip_all WHY
skip_all()
{
	echo "1..0 # SKIP $1"
	exit 0
}

# run-tests asks for it once: in the build with all there is.
if [ "${PLAIT_TEST_EMULATED-}" = no ]; then
	make -n -f "$top_srcdir/tests/gpu/emulated/module.mk" \
		top_srcdir="$top_srcdir" >/dev/null || exit 99
	skip_all "PLAIT_TEST_EMULATED=no: its files are there, that is all"
fi
command -v python3 >/dev/null || skip_all "no python3"
# -fsanitize=thread in kernels is the point: another compiler may not tell of
# each access as GCC does.
cxx=${CXX:-g++}
$cxx --version 2>/dev/null | grep -q -i 'gcc\|g++\|Free Software' ||
	skip_all "no g++"

emulated=$top_builddir/tests/gpu/emulated
unset MAKEFLAGS MAKELEVEL MFLAGS
flock "$emulated/lock" make -s -C "$top_builddir" -j"$(nproc)" \
	emulated-module >"$emulated/module.log" 2>&1 || {
	sed 's/^/# /' "$emulated/module.log"
	echo "1..1"
	echo "not ok 1 - the emulated GPU is built"
	exit 1
}
export PLAIT_MODULE_PATH="$emulated/modules"
