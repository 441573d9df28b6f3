#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The plugin runs in slurmstepd as root: its unit tests must have no memory
# errors.
command -v valgrind >/dev/null || { echo "1..0 # SKIP no valgrind"; exit 0; }
case $(grep '^SANITIZER_CFLAGS = ' "$top_builddir/Makefile") in
*-fsanitize*) echo "1..0 # SKIP built with a sanitizer"; exit 0 ;;
esac
n=0 failed=0
for test in options binding local remote; do
    program=$top_builddir/tests/unit/test_spank_$test
    # these tests contain the plugin, which is built only with Slurm
    case $test in
    local | remote) [ -x "$program" ] || continue ;;
    esac
    n=$((n + 1))
    if out=$("$top_builddir/libtool" --mode=execute valgrind -q \
        --suppressions="$top_srcdir/tests/unit/hwloc.supp" \
        --error-exitcode=9 --leak-check=full --trace-children=no \
        --child-silent-after-fork=yes "$program" 2>&1); then
        echo "ok $n - test_spank_$test"
    else
        echo "not ok $n - test_spank_$test"
        printf '%s\n' "$out" | grep -v '^ok' | sed 's/^/# /'
        failed=1
    fi
done
echo "1..$n"
exit $failed
