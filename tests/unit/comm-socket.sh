#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests over sockets, without MPI. The third program has no room for shared
# memory, as between nodes.
tests=$top_builddir/tests/unit
n=0

# run WHAT RANKS PROGRAM...: whether all of its checks passed on all ranks
run() {
	what=$1 ranks=$2
	shift 2
	n=$((n + 1))
	said=$("$top_builddir/plait" run --np "$ranks" --pin=none -- "$@" 2>&1)
	status=$?
	case $said in
	*"not ok"* | *SKIP*) status=1 ;;
	*1..[1-9]*) ;;
	*) status=1 ;;
	esac
	if [ $status = 0 ]; then
		echo "ok $n - $what"
	else
		echo "not ok $n - $what"
		echo "$said" | sed 's/^/# /'
	fi
}

run "four ranks" 4 "$tests/test_comm" socket
run "many at a time" 3 "$tests/test_comm_async"
run "the same as between nodes" 3 sh -c 'trap "" XFSZ; ulimit -f 256
	exec "$0"' "$tests/test_comm_async"
run "two ranks" 2 "$tests/test_comm" socket
echo "1..$n"
