# SPDX-License-Identifier: Apache-2.0
# For the tests of the emulated GPU to source. Builds the module, or skips the
# test and says why.

# skip_all WHY
skip_all()
{
	echo "1..0 # SKIP $1"
	exit 0
}

# run-tests needs these tests in one of its configurations only.
if [ "${PLAIT_TEST_EMULATED-}" = no ]; then
	make -n -f "$top_srcdir/tests/gpu/emulated/module.mk" \
		top_srcdir="$top_srcdir" >/dev/null || exit 99
	skip_all "PLAIT_TEST_EMULATED=no: its files are there, that is all"
fi
command -v python3 >/dev/null || skip_all "no python3"
# Kernels need -fsanitize=thread, and only GCC is known to call a function
# before each access.
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
# Registered memory is off by default; tests turn it on so that its code is tried.
export PLAIT_NCCL_WINDOWS=1
