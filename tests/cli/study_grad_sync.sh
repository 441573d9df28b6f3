#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of gradient sums; it checks bytes and losses.
. "$top_srcdir/tests/lib/study.sh"
need_mpirun
quick_study grad_sync
grep -q '^| 4 | naive | 1.50 | 0.50 |' "$tmp/out"
check "naive sends twice the bytes of an all-reduce from 4 ranks' first" $?
grep -q '^| 4 | bucketed | 0.75 | 0.75 |' "$tmp/out"
check "bucketed as many as one all-reduce" $?
echo "1..$n"
