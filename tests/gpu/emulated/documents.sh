#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Attention within documents.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
export PLAIT_TEST_CASES=attention,
exec "$top_builddir/tests/gpu/emulated/test_ops"
