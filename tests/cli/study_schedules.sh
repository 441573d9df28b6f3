#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of schedules and of Muon; it checks that QK-clip changes nothing
# where no logit is above tau.
. "$top_srcdir/tests/lib/study.sh"
quick_study schedules
for row in 'schedule-free' 'by heads' 'tau 10'; do
    grep -q "^| $row | " "$tmp/out"
    check "a row of $row" $?
done
echo "1..$n"
