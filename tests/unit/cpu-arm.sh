#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The kernels for 64-bit Arm, NEON and SVE, against ref on an emulated
# processor, if aarch64-linux-gnu-gcc and qemu-aarch64 are installed (Debian's
# gcc-aarch64-linux-gnu and qemu-user). arm_libraries.c stands in for oneDNN and
# OpenBLAS, which are not tested here.
. "$top_srcdir/tests/lib/check.sh"
for tool in aarch64-linux-gnu-gcc qemu-aarch64 make; do
    command -v $tool >/dev/null ||
        { echo "1..0 # SKIP there is no $tool" && exit; }
done
if grep -q '^SANITIZER_CFLAGS = .*-fsanitize' "$top_builddir/Makefile"; then
    echo "1..0 # SKIP the same in a build without sanitizers" && exit
fi
src=$(realpath "$top_srcdir")
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu OMP_NUM_THREADS=2
export PLAIT_TEST_ELEMENTS=16000 # an emulated ref is slow
printf '#define HAVE_ARM_VECTORS 1\n' >"$tmp/config.h"
cat >"$tmp/Makefile" <<'EOT'
vpath %.c $(addprefix $(src)/,kernels kernels/cpu kernels/ref tests/unit)
CC = aarch64-linux-gnu-gcc
CFLAGS = -std=gnu11 -Wall -Wextra -Werror -fopenmp -D_GNU_SOURCE -I. -I$(src) \
    -fno-math-errno -fno-trapping-math $(O)
O = -O1
vectors = $(sort $(subst _sources,,$(shell sed -n \
    '/^cpu_vector_sources/,/[^\\]$$/s,.*kernels/cpu/\(.*\)\.c.*,\1,p' \
    $(src)/kernels/Makemodule.am)))
ref = $(patsubst $(src)/kernels/ref/%.c,ref-%.o,$(wildcard $(src)/kernels/ref/*.c))
tests = $(patsubst $(src)/tests/unit/%.c,%.o, \
    $(wildcard $(src)/tests/unit/ops_*.c)) test_ops_cpu.o arm_libraries.o
test: $(vectors:%=base-%.o) $(vectors:%=sve-%.o) $(ref) $(tests) kernels.o \
    grouped.o host.o cpu-ops.o cpu-isa.o cpu-queue.o module.o
	$(CC) -fopenmp -o $@ $^ -lm
base-%.o: $(src)/kernels/cpu/%.c
	$(CC) $(CFLAGS) -DCPU_ISA=base -c -o $@ $<
sve-%.o: $(src)/kernels/cpu/%.c
	$(CC) $(CFLAGS) -DCPU_ISA=sve -march=armv8.2-a+sve \
	    -msve-vector-bits=256 -c -o $@ $<
ref-%.o: $(src)/kernels/ref/%.c
	$(CC) $(CFLAGS) -O2 -c -o $@ $<
cpu-%.o: $(src)/kernels/cpu/%.c
	$(CC) $(CFLAGS) -c -o $@ $<
EOT
make -s -k -j2 -C "$tmp" src="$src" >"$tmp/log" 2>&1
check "compiles for 64-bit Arm" $?
grep -m 5 -e error -e Error "$tmp/log" | sed 's/^/# /'

# run CPU CLASS CASES: run the kernels' test
run() {
    QEMU_CPU=$1 PLAIT_CPU_ISA=$2 PLAIT_TEST_CASES=$3 \
        qemu-aarch64 "$tmp/test" >"$tmp/out" 2>&1
}

# kernels CPU CLASS: test everything except what the libraries compute
kernels() {
    run "$1" "$2" '!convolution' && grep -q '^ok' "$tmp/out"
    rc=$?
    check "$2: $(grep -c '^ok' "$tmp/out") cases like ref" $rc
    grep -A3 '^not ok\|^# seed' "$tmp/out" | sed 's/^not/# not/'
}

sve256=max,sve-default-vector-length=32
[ -x "$tmp/test" ] || { echo "1..$n" && exit; }
kernels cortex-a72 neon
kernels $sve256 sve
run cortex-a72 sve ""
grep -q 'PLAIT_CPU_ISA=sve: this processor has supports at most neon' "$tmp/out"
check "sve is refused where there is none" $?
run max,sve-default-vector-length=16 sve ""
grep -q 'supports at most neon' "$tmp/out"
check "sve is refused where its vectors are NEON's" $?
run $sve256 avx2 ""
grep -q 'PLAIT_CPU_ISA=avx2: this processor has no more than sve' "$tmp/out"
check "x86's are refused" $?
echo "1..$n"
