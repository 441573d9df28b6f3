#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every #include of the sources follows an arrow of tests/style/arrows, and the
# arrows form no cycle. The check is also tried on wrong trees.
. "$top_srcdir/tests/lib/check.sh"
style=$(cd "$top_srcdir/tests/style" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# check_tree FOLDER ARROWS: print its errors
check_tree() (
    cd "$1" || exit 2
    rooms=
    for folder in topology spank_plugin kernels runtime; do
        [ -d $folder ] && rooms="$rooms $folder"
    done
    find $rooms -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' \
        -o -name '*.cuh' | LC_ALL=C sort |
        xargs "${AWK:-awk}" -f "$style/includes.awk" "$2"
)

check_tree "$top_srcdir" "$style/arrows" >"$tmp/out"
status=$?
sed 's/^/# /' "$tmp/out"
check "every include follows an arrow" $status

# refused WHAT WORDS [ARROWS]: whether the small tree is refused with WORDS
refused() {
    check_tree "$tmp/tree" "${3:-$style/arrows}" >"$tmp/out"
    [ $? != 0 ] && grep -qF -- "$2" "$tmp/out"
    check "$1 is found" $?
}

# plant FILE LINE: make a tree of a single source file
plant() {
    rm -rf "$tmp/tree"
    mkdir -p "$tmp/tree/$(dirname "$1")" && echo "$2" >"$tmp/tree/$1"
}

plant topology/base/a.c '#include "topology/base/error.h"'
[ -z "$(check_tree "$tmp/tree" "$style/arrows")" ]
check "a small tree without errors passes" $?
plant topology/base/a.c '#include "topology/plan/plan.h"'
refused "an upward include" \
    'topology/base/a.c:1: topology/base -> topology/plan points up'
plant runtime/mesh/a.c '  #  include "kernels/cpu/cpu.h"'
refused "an include past a room's front" 'runtime/mesh -> kernels/cpu'
plant runtime/train/a.c '#include "runtime/model/internal.h"'
refused "a private header" 'internal.h is private to runtime/model'
plant topology/node/a.c '#include <slurm/slurm.h>'
refused "a library in the wrong room" 'topology/node includes <slurm/slurm.h>'
plant topology/base/a.c '#include "error.h"'
refused "a path that is not from the root" '"error.h" is not a path'
plant topology/new/a.c ''
refused "a folder without a line" 'topology/new/a.c: its folder'
printf 'kernels: topology/base\ntopology/base: kernels\n' >"$tmp/arrows"
plant kernels/a.c ''
refused "a cycle" 'cycle of rooms' "$tmp/arrows"
echo "1..$n"
