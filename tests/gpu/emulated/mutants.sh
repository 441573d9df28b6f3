#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
exec python3 "$top_srcdir/tests/gpu/emulated/mutants.py" kernels \
	"$top_srcdir" "$emulated/modules" "$emulated"
