#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In each variant of the study of local SGD, the bytes sent are those of its
# meetings.
. "$top_srcdir/tests/lib/study.sh"
need_mpirun
quick_study local_sgd
grep -q '^| local SGD .* 0.1250 |$' "$tmp/out"
check "local SGD with H = 8 sends an eighth of the small batch's" $?
grep -q '^| fragments 2, delay 5, fp8 |' "$tmp/out"
check "DiLoCo with a delay and in fp8" $?
grep -q '>DiLoCo</text>' "$tmp/local_sgd.svg"
check "the plot names DiLoCo" $?
echo "1..$n"
