#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of warmups; it checks the rates that each begins with.
. "$top_srcdir/tests/lib/study.sh"
quick_study warmup
echo "1..$n"
