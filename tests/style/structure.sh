#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Folders have no cycles of dependencies, no function is over 60 lines, few files
# are over 500, each opens with what it is for, tests can be executed, and make
# files where build-aux/time-limit finds them.
. "$top_srcdir/tests/lib/check.sh"
structure=$top_srcdir/build-aux/structure
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

"$structure" --long "$top_srcdir" >"$tmp/long" || exit 1
sed 's/^/# /' "$tmp/long"
! grep -q ':[0-9]*: ' "$tmp/long"
check "no function is over 60 lines" $?
[ "$(grep -vc ':[0-9]*: ' "$tmp/long")" -le 7 ]
check "at most 7 files are over 500 lines" $?
"$structure" "$top_srcdir" | grep -q '^cycles of folders *0$'
check "no cycle of folders" $?

# purpose FILE: whether a comment comes before its first declaration; in a
# source apart from it, or else it is about that declaration
purpose() {
    case $1 in *.c | *.cu) header=0 ;; *) header=1 ;; esac
    [ -f "$1" ] && awk -v header=$header '
        NR == 1 || !begun && /^[[:space:]]*($|#|[{}]|extern "C")/ { next }
        !begun && (!/^[[:space:]]*\/\*/ || /^\/\* -- /) { exit }
        ended { apart = /^$|^#include|^#define _[A-Z]/; exit }
        { begun = 1; ended = /\*\// }
        END { exit !(begun && (apart || header)) }' "$1"
}
find "$top_srcdir/kernels" "$top_srcdir/runtime" "$top_srcdir/spank_plugin" \
    "$top_srcdir/topology" -name '*.c' -o -name '*.cu' | while read -r file; do
    purpose "$file" || purpose "${file%.*}.h" || purpose "${file%.*}.cuh" ||
        echo "# $file"
done >"$tmp/purpose"
cat "$tmp/purpose"
[ ! -s "$tmp/purpose" ]
check "each source, or its header, opens with what it is for" $?
printf '/* SPDX */\n/* Seconds. */\n#define EACH 2\n' >"$tmp/number.c"
printf '/* SPDX */\n/* -- part -- */\n\nint n;\n' >"$tmp/part.c"
! purpose "$tmp/number.c" && ! purpose "$tmp/part.c"
check "a comment on a constant, or over a part, is no purpose" $?

mkdir "$tmp/topology" "$tmp/spank_plugin" "$tmp/kernels" "$tmp/runtime"
{
    printf 'int f(void)\n{\n'
    yes '    g();' | head -n 600
    printf '}\n'
} >"$tmp/topology/long.c"
[ "$("$structure" --long "$tmp" | grep -c 'topology/long.c')" = 2 ]
check "a long function and a long file are found" $?

! grep -rn --include='*.[ch]' --include='*.sh' --exclude-dir=bench \
    '["( ]/tmp/plait[-.]' "$top_srcdir/tests" | sed 's/^/# /' | grep .
check "tests make their files in TMPDIR" $?

! grep -lr --include='*.sh' -m1 '^#!' "$top_srcdir/tests" |
    while read -r script; do
        [ -x "$script" ] || echo "# $script"
    done | grep .
check "all scripts that name their shell can be executed" $?
echo "1..$n"
