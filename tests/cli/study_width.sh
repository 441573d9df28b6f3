#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The study of rates and widths; it checks that muP changes nothing at the base.
. "$top_srcdir/tests/lib/study.sh"
quick_study width
grep -q '^| with muP | 128 |' "$tmp/out"
check "with muP and without" $?
echo "1..$n"
