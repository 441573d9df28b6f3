#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of what experts are balanced over; it checks that a loss of weight 0
# balances nothing.
. "$top_srcdir/tests/lib/study.sh"
quick_study balance
for row in 'none | 0' 'sequence | 0.1' 'batch | 0.1'; do
    grep -q "^| $row | " "$tmp/out"
    check "a row of $row" $?
done
echo "1..$n"
