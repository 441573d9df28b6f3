#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# As between nodes: no process may make a file of the size that shared memory
# takes, and messages go over TCP.
exec sh "$top_srcdir/tests/lib/mpirun.sh" 2 sh -c '
	trap "" XFSZ
	ulimit -f 256
	OMPI_MCA_btl=tcp,self exec "$0"' "$top_builddir/tests/unit/test_comm_async"
