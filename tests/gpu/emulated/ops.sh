#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The cases of test_ops_cuda on the emulated GPU but for attention, which
# attention.sh and documents.sh have.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
export PLAIT_TEST_CASES='!attention'
exec "$top_builddir/tests/gpu/emulated/test_ops"
