#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what ptxas reported for this build's kernels with
# tests/gpu/ptxas.table: no spilled registers beyond the table and, with the
# table's compiler, no more registers and shared memory.
. "$top_srcdir/tests/lib/check.sh"
table=$top_srcdir/tests/gpu/ptxas.table
objects=$(find "$top_builddir/kernels/cuda" -name '*.o.ptxas' | grep /.libs/)
if [ -z "$objects" ]; then
	echo "1..0 # SKIP no kernels were compiled here"
	exit 0
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

awk -f "$top_srcdir/tests/gpu/ptxas.awk" $objects | sort >"$tmp/now"
[ "${1-}" != --table ] || { cat "$tmp/now"; exit 0; }
nvcc=$(sed -n 's/^NVCC = //p' "$top_builddir/Makefile" 2>/dev/null)
release=$("${nvcc:-nvcc}" --version 2>/dev/null |
	sed -n 's/.*release \([0-9.]*\),.*/\1/p')
known=$(sed -n 's/^# nvcc //p' "$table")

# more COLUMN WHAT FILE: print kernels for which FILE has a larger number in
# COLUMN than the table
more()
{
	awk -v column="$1" -v what="$2" '
	/^#/ { next }
	FILENAME != ARGV[2] { most[$1, $2, $3] = $column + 0; next }
	!(($1, $2, $3) in most) && column > 5 { next }
	$column + 0 > most[$1, $2, $3] + 0 {
		printf "# %s %s %s: %d %s, the table has %d\n", $1, $2, $3,
		    $column, what, most[$1, $2, $3]
		bad = 1
	}
	END { exit bad }' "$table" "$3"
}

more 5 'bytes of spilled registers' "$tmp/now"
check "no more registers are spilled than the table knows of" $?
if [ "$release" = "$known" ]; then
	more 4 registers "$tmp/now"
	check "no kernel has more registers" $?
	more 6 'bytes of shared memory' "$tmp/now"
	check "no kernel has more shared memory" $?
	echo "unit kernel sm_80 999 0 0" >"$tmp/bad"
	echo "$(sed -n 's/ [0-9]* [0-9]* [0-9]*$/ 256 4096 0/p' "$table" |
		head -n 1)" >>"$tmp/bad"
	! more 4 registers "$tmp/bad" >"$tmp/out" &&
		! more 5 bytes "$tmp/bad" >>"$tmp/out"
	check "registers and spills beyond the table are found" $?
else
	echo "# nvcc $release: registers are compared for $known alone"
fi
echo "1..$n"
