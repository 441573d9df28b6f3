#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of the generalization gap; it checks that one ghost batch equals the
# batch, and that noise changes the gradients and not the loss.
. "$top_srcdir/tests/lib/study.sh"
quick_study generalization
echo "1..$n"
