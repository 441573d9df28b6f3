#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of batch sizes; it checks the rates that lr.scaling gives.
. "$top_srcdir/tests/lib/study.sh"
quick_study batch_size
grep -q '^| batch | noise scale at the start' "$tmp/out" &&
    grep -q '^| 256 | [0-9]* | [0-9]* | [0-9]* |' "$tmp/out"
check "the noise scale is measured" $?
echo "1..$n"
