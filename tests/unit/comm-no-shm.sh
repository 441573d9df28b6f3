#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Like ranks on different nodes: no process may create a file as large as the
# shared memory would be, and messages go over TCP.
exec sh "$top_srcdir/tests/lib/mpirun.sh" 2 sh -c '
	trap "" XFSZ
	ulimit -f 256
	OMPI_MCA_btl=tcp,self exec "$0"' "$top_builddir/tests/unit/test_comm_async"
