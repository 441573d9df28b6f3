#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of the generalization gap; it checks that one ghost batch is the
# batch, and that noise leaves the loss alone and the gradients not.
. "$top_srcdir/tests/lib/study.sh"
quick_study generalization
echo "1..$n"
