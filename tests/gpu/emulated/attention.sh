#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The cases of attention, the longest of ops.sh.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
export PLAIT_TEST_CASES=attention
exec "$top_builddir/tests/gpu/emulated/test_ops"
