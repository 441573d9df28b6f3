#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each public header can be compiled alone, as C11 and as C++11, without
# warnings.
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cc=$(sed -n 's/^CC = //p' "$top_builddir/Makefile")
cxx=$(sed -n 's/^CXX = //p' "$top_builddir/Makefile")
flags="-Wall -Wextra -pedantic -Werror -I$top_srcdir/topology/api"

for header in "$top_srcdir"/topology/api/plait/*.h; do
    header=plait/$(basename "$header")
    printf '#include <%s>\nextern int unit;\n' "$header" |
        tee "$tmp/a.c" >"$tmp/a.cc"
    $cc -std=c11 -Wstrict-prototypes $flags -c -o "$tmp/a.o" "$tmp/a.c" 2>&1
    check "<$header> as C11" $?
    $cxx -std=c++11 $flags -c -o "$tmp/a.o" "$tmp/a.cc" 2>&1
    check "<$header> as C++11" $?
done
echo "1..$n"
