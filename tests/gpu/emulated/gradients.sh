#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every backward on the emulated GPU against finite differences of its forward.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
exec "$top_builddir/tests/gpu/emulated/test_gradients" cuda
