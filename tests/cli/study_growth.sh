#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of growing batches against decaying rates; it checks that both see
# the same samples, in the listed steps and batches.
. "$top_srcdir/tests/lib/study.sh"
quick_study growth
grep -q '^| digits | growth | 37 | 16 64 256 |' "$tmp/out"
check "37 steps see the data of 64" $?
grep -q '^| Bible | auto |' "$tmp/out"
check "and a batch that follows the noise scale" $?
echo "1..$n"
