#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The attention cases of test_ops, which take longest; ops.sh has the others,
# documents.sh those of attention within documents.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
export PLAIT_TEST_CASES=attention_
exec "$top_builddir/tests/gpu/emulated/test_ops"
