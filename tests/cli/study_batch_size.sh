#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of batch sizes; it checks the rates that lr.scaling gives.
. "$top_srcdir/tests/lib/study.sh"
quick_study batch_size
grep -q '^The meter shows [0-9]* at the start' "$tmp/out"
check "the noise scale is measured" $?
echo "1..$n"
