#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of moments in bf16; it checks that the first step is the same
# as with moments in fp32.
. "$top_srcdir/tests/lib/study.sh"
quick_study moments
for row in 'fp32' 'bf16' 'bf16-nearest' '8 bits'; do
    grep -q "^| 0.999 | $row | " "$tmp/out"
    check "a row of $row" $?
done
grep -q "^| none, moments in bf16 | " "$tmp/out"
check "a row without masters" $?
echo "1..$n"
