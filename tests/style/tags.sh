#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No struct, enum or union of the sources has the name of another one, so that
# a debugger and an index of tags find the one that is meant. What kernels.h
# leaves to each kind of device, as struct plait_queue, is defined once for
# each. And a limit is called X_MOST. The checks are also tried on wrong trees.
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# twice FOLDER: print the tags that are defined more than once
twice() (
    cd "$1" || exit 2
    find topology spank_plugin kernels runtime -name '*.[ch]' \
        -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort |
        xargs "${AWK:-awk}" '
/^struct plait_[a-z0-9_]+;/ && FILENAME == "kernels/kernels.h" {
    sub(/;.*/, "", $2)
    devices[$2] = 1
}
match($0, /(struct|enum|union) plait_[a-z0-9_]+ \{/) {
    split(substr($0, RSTART, RLENGTH), word, " ")
    tag = word[2]
    where[tag] = where[tag] " " FILENAME
    count[tag]++
    if (FILENAME !~ /^kernels\//)
        outside[tag] = 1
}
END {
    for (tag in count)
        if (count[tag] > 1 && (!(tag in devices) || tag in outside))
            print tag ":" where[tag]
}'
)

# limits FOLDER: print the lines that define a limit by another name
limits() (
    cd "$1" || exit 2
    name='(PLAIT_)?[A-Z0-9]*_?(MAX|MOST)_[A-Z0-9_]+'
    grep -rnE "(#define |[{,] |^    )$name( = | [0-9(])" \
        topology spank_plugin kernels runtime tests \
        --include='*.[ch]' --include='*.cc' --include='*.cu' |
        grep -vE '(^tests/gpu/emulated/include/|MOST_M?S |PLAIT_KEY_)'
)

twice "$top_srcdir" >"$tmp/out" && [ ! -s "$tmp/out" ]
status=$?
sed 's/^/# /' "$tmp/out"
check "each plait_ tag is defined once" $status

mkdir "$tmp/tree"
(cd "$tmp/tree" && mkdir topology spank_plugin kernels runtime)
echo 'struct plait_queue;' >"$tmp/tree/kernels/kernels.h"
for file in kernels/host.h kernels/cuda.h; do
    echo 'struct plait_queue {' >"$tmp/tree/$file"
done
echo 'struct plait_span {' >"$tmp/tree/topology/a.h"
[ -z "$(twice "$tmp/tree")" ]
check "a type that each kind of device defines is let pass" $?
echo '    enum plait_span {' >"$tmp/tree/runtime/b.c"
[ "$(twice "$tmp/tree")" = 'plait_span: runtime/b.c topology/a.h' ]
check "two types of one name are found" $?
echo 'struct plait_queue {' >"$tmp/tree/runtime/b.c"
twice "$tmp/tree" | grep -q '^plait_queue: '
check "a device's type is not one of another folder" $?

limits "$top_srcdir" >"$tmp/out"
[ ! -s "$tmp/out" ]
status=$?
sed 's/^/# /' "$tmp/out"
check "limits are called X_MOST" $status
mkdir "$tmp/tree/tests"
printf '%s\n' '#define MAX_ROWS 4' 'enum { MOST_COLS = 3 };' \
    '#define PLAIT_A_MAX_ROWS (1 << 4)' '#define ROWS_MOST 4' \
    '#define WAIT_MOST_S 3' 'enum { A, COLS_MOST = 3 };' \
    >"$tmp/tree/runtime/c.h"
[ "$(limits "$tmp/tree" | wc -l)" -eq 3 ]
check "other names of limits are found" $?
echo "1..$n"
