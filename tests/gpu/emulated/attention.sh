#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The cases of attention, the longest of ops.sh; documents.sh has the rest.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
export PLAIT_TEST_CASES=attention_
exec "$top_builddir/tests/gpu/emulated/test_ops"
