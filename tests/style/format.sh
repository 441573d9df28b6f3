#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every C, C++ and CUDA file is formatted by .clang-format. Releases of
# clang-format differ in details, so only version 14, for which it is written,
# counts.
. "$top_srcdir/tests/lib/check.sh"
format=$(command -v clang-format-14 || echo clang-format)
case $($format --version 2>/dev/null) in
*'version 14.'*) ;;
*)
    echo "1..0 # SKIP no clang-format 14"
    exit 0
    ;;
esac

# unformatted FOLDER...: print files in the folders that are formatted otherwise
unformatted() {
    find "$@" -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' \
        -o -name '*.cuh' >"$tmp/files"
    xargs "$format" --dry-run -Werror <"$tmp/files" 2>&1 |
        sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: .*/\1/p' | sort -u
}

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$top_srcdir" || exit 1
wrong=$(unformatted topology spank_plugin kernels runtime tests examples)
for file in $wrong; do echo "# $format -i $file"; done
[ -s "$tmp/files" ] && [ -z "$wrong" ]
check "clang-format 14 would change nothing" $?

cp .clang-format "$tmp"
printf 'int  f(int a)\n{\n  return a;\n}\n' >"$tmp/bad.c"
printf 'int f(int a)\n{\n    return a;\n}\n' >"$tmp/good.c"
[ "$(unformatted "$tmp")" = "$tmp/bad.c" ]
check "a file in another style is found" $?
echo "1..$n"
