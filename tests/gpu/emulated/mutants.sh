#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
exec python3 "$top_srcdir/tests/gpu/emulated/mutants.py" "$top_srcdir" \
	"$emulated/modules" "$top_builddir/tests/gpu/emulated/test_ops"
