#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every backward of the emulated GPU against differences of its forward.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
exec "$top_builddir/tests/gpu/emulated/test_gradients" cuda
