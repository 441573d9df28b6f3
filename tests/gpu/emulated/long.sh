#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
exec "$top_builddir/tests/gpu/emulated/test_long"
