#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of optimizers; it checks that LARC with a huge trust coefficient is
# SGD.
. "$top_srcdir/tests/lib/study.sh"
quick_study optimizers
grep -q '>LARC</text>' "$tmp/optimizers.svg" &&
    grep -q '>Muon</text>' "$tmp/optimizers.svg"
check "of images and of text" $?
echo "1..$n"
