#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No function has more than 8 parameters, few have more than 6, and no operation
# of kernels.h more than 4: arguments that go together are members of a struct,
# which have names where it is filled in. The check is also tried on a tree.
. "$top_srcdir/tests/lib/check.sh"
parameters=$top_srcdir/tests/style/parameters.py
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

python3 "$parameters" "$top_srcdir" >"$tmp/above6" || exit 1
sed 's/^/# /' "$tmp/above6"
! awk '$NF > 8' "$tmp/above6" | grep -q .
check "no function has more than 8 parameters" $?
[ "$(wc -l <"$tmp/above6")" -le 60 ]
check "at most 60 functions have more than 6" $?
python3 "$parameters" "$top_srcdir" 4 >"$tmp/above4" || exit 1
! grep '^kernels/kernels\.h:' "$tmp/above4" | sed 's/^/# /' | grep .
check "no operation has more than 4" $?

mkdir "$tmp/tree" "$tmp/tree/runtime"
cat >"$tmp/tree/runtime/many.c" <<'END'
/* void in_comment(int a, int b, int c, int d, int e, int f, int g) { */
#define IN_MACRO(a, b, c, d, e, f, g) { a }
void declared(int a, int b, int c, int d, int e, int f, int g);
static int few(int (*of)(int, int), int b, int c, int d, int e, int f)
{
    if (called(1, 2, 3, 4, 5, 6, 7)) {
        return 0;
    }
}

struct table {
    int (*member)(int a, int b, int c, int d, int e, int f, int g);
};

int many(const char *a, int b, int c, int d, int (*e)(int, int), int f,
         int g, int h, struct table *i)
{
}
END
[ "$(python3 "$parameters" "$tmp/tree")" = "runtime/many.c:15 many 9
runtime/many.c:12 member 7" ]
check "a function and a member with many are found, and nothing else" $?
echo "1..$n"
