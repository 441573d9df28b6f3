#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libplait.so exports the names in tests/library/symbols.list, and <plait/*.h>
# declares the same. Removed or new names change the version: HACKING.md.
. "$top_srcdir/tests/lib/check.sh"
library=$top_builddir/.libs/libplait.so
list=$top_srcdir/tests/library/symbols.list
tmp=$(mktemp) || exit 1
trap 'rm -f "$tmp"' EXIT

# compare WHAT: whether the names in $tmp are those of the list
compare() {
    LC_ALL=C sort -o "$tmp" "$tmp"
    diff "$list" "$tmp" | sed 's/^/# /'
    cmp -s "$list" "$tmp"
    check "$1" $?
}

if [ ! -e "$library" ]; then
    echo "1..0 # SKIP no shared library was built"
    exit 0
fi
cat "$top_srcdir"/topology/api/plait/*.h | tr '\n' ' ' |
    grep -oE 'PLAIT_EXPORT [^;(]*\(' | grep -oE 'plait_[a-z_]+\(' | tr -d '(' >"$tmp"
compare "the headers declare what is on the list"
if grep -q '^SANITIZER_CFLAGS = .*-fsanitize' "$top_builddir/Makefile"; then
    echo "ok $((n = n + 1)) - # SKIP a sanitizer exports names of its own"
else
    nm -D --defined-only "$library" | awk '{ print $3 }' >"$tmp"
    compare "the library exports what is on the list"
fi
echo "1..$n"
