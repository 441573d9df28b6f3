#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
exec sh "$top_srcdir/tests/lib/mpirun.sh" 8 \
	"$top_builddir/tests/unit/test_mesh" mpi
