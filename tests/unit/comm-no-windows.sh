#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An MPI that has no shared windows: messages do what shared memory cannot.
OMPI_MCA_osc=ucx
export OMPI_MCA_osc
exec sh "$top_srcdir/tests/lib/mpirun.sh" 2 \
	"$top_builddir/tests/unit/test_comm" mpi
