#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of model averaging; it checks that one learner with alpha 0 is SGD,
# and that learners in turn equal learners on ranks of their own.
. "$top_srcdir/tests/lib/study.sh"
need_mpirun
quick_study sma
echo "1..$n"
