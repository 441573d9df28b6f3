#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The installed library works for a C program, found by pkg-config, and for a
# Python program by ctypes; both print the same as `plait plan`.
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

# setting NAME: a variable of the Makefile
setting() { sed -n "s/^$1 = //p" "$top_builddir/Makefile"; }

if [ ! -e "$top_builddir/.libs/libplait.so" ] || ! command -v pkg-config \
    >/dev/null; then
    echo "1..0 # SKIP no shared library, or no pkg-config"
    exit 0
fi
"${MAKE:-make}" -s -C "$top_builddir" DESTDIR="$tmp/root" install-libLTLIBRARIES \
    install-dist_plaitincludeHEADERS install-nodist_pkgconfigDATA \
    >"$tmp/log" 2>&1
status=$?
[ $status = 0 ] || sed 's/^/# /' "$tmp/log"
check "library, headers and libplait.pc are installed" $status

pc=$(find "$tmp/root" -name libplait.pc)
export PKG_CONFIG_PATH=${pc%/*}
for variable in libdir includedir; do
    path=$(pkg-config --variable=$variable libplait)
    defines+=("--define-variable=$variable=$tmp/root$path")
done
export LD_LIBRARY_PATH=${PKG_CONFIG_PATH%/pkgconfig}
# shellcheck disable=SC2046
$(setting CC) -std=c11 -Wall -Werror $(setting SANITIZER_CFLAGS) \
    "$top_srcdir/examples/library/plan.c" -o "$tmp/plan" \
    $(pkg-config "${defines[@]}" --cflags --libs libplait)
check "the C example builds with pkg-config's flags" $?

cat >"$tmp/topology.conf" <<'CONF'
SwitchName=a Nodes=n[1,3]
SwitchName=b Nodes=n[2,4]
SwitchName=top Switches=a,b
CONF
"$tmp/plan" 16 'n[1-4]' 4 "$tmp/topology.conf" >"$tmp/c"
check "the C example runs" $?
"$tmp/plan" 15 'n[1-4]' 4 2>&1 >/dev/null | grep -q '^plan: .*15'
check "the C example says why a layout does not fit" $?

if ! command -v python3 >/dev/null; then
    echo "ok $((n = n + 1)) - # SKIP no python3"
elif [ -n "$(setting SANITIZER_CFLAGS)" ]; then
    echo "ok $((n = n + 1)) - # SKIP Python has no sanitizer's library"
else
    "$top_srcdir/examples/library/plan.py" 16 'n[1-4]' 4 \
        "$tmp/topology.conf" >"$tmp/python"
    diff "$tmp/c" "$tmp/python"
    check "the Python example prints the same" $?
fi
if command -v jq >/dev/null; then
    "$top_builddir/plait" plan --tp=2 --pp=2 --nodes='n[1-4]' \
        --tasks-per-node=4 --fabric="$tmp/topology.conf" --json |
        jq -r '.ranks[] |
            "\(.procid) \(.node) \(.gpu) \(.rank) \(.tp) \(.dp) \(.pp)"' \
            >"$tmp/command"
    sed '1d; $d' "$tmp/c" | diff "$tmp/command" -
    check "plait plan says the same" $?
else
    echo "ok $((n = n + 1)) - # SKIP no jq"
fi
echo "1..$n"
