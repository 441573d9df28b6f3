#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks of the order of streams and of ranks that NCCL connects: correct
# programs are not reported, mistakes of a caller are.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
. "$top_srcdir/tests/lib/check.sh"
. "$top_srcdir/tests/lib/tier.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# right PROGRAM WHAT: whether nothing is reported, and everything is destroyed
right()
{
	EMULATED_CALLS=$tmp/calls "$emulated/$1" >"$tmp/out" 2>&1 &&
		grep -q left-streams "$tmp/calls" &&
		! grep '^left-.* [^0]' "$tmp/calls" >>"$tmp/out"
	status=$?
	[ $status -eq 0 ] || sed 's/^/# /' "$tmp/out"
	check "$2" $status
}

# wrong WORDS WHAT PROGRAM [ARGUMENT]: whether PROGRAM fails and prints WORDS
wrong()
{
	words=$1 what=$2 program=$3
	shift 3
	! "$emulated/$program" "$@" >"$tmp/out" 2>&1 &&
		grep -q "$words" "$tmp/out"
	status=$?
	[ $status -eq 0 ] || sed 's/^/# /' "$tmp/out"
	check "$what" $status
}

right test_streams "queues, events, pinned memory and recordings"
PLAIT_CUDA_SYNC=1
export PLAIT_CUDA_SYNC
right test_streams "the same with PLAIT_CUDA_SYNC=1"
unset PLAIT_CUDA_SYNC
right test_comms "transfers of two groups on two GPUs"
EMULATED_NCCL=no-windows
export EMULATED_NCCL
right test_comms "the same where memory cannot be registered"
unset EMULATED_NCCL
right test_lost "a rank that is killed, and a world of the others"
if all_tier; then
	"$emulated/test_waits" >"$tmp/out" 2>&1
	status=$?
	[ $status -eq 0 ] || sed 's/^/# /' "$tmp/out"
	check "calls of NCCL that never end, and a link that fails" $status
fi
# The mistakes from here on are for the emulated NCCL to find: hosts that compare
# would wait for each other in two groups, which a run's watch ends.
PLAIT_CHECK_COLLECTIVES=0
export PLAIT_CHECK_COLLECTIVES
wrong "they enter transfers in different orders" \
	"groups that are entered in different orders" test_comms orders
wrong "another operation, count, type or root" \
	"transfers that do not match" test_comms counts
NCCL_LAUNCH_ORDER_IMPLICIT=0
export NCCL_LAUNCH_ORDER_IMPLICIT
wrong "NCCL_LAUNCH_ORDER_IMPLICIT is not 1" \
	"groups whose kernels nothing orders" test_comms
unset NCCL_LAUNCH_ORDER_IMPLICIT

if all_tier; then
	python3 "$top_srcdir/tests/gpu/emulated/mutants.py" streams "$top_srcdir" \
		"$emulated/modules" "$emulated" >"$tmp/mutants"
	sed "s/^\(not \)\{0,1\}ok/# &/; /^1\.\./d" "$tmp/mutants"
	! grep -q '^not ok' "$tmp/mutants" && grep -q '^1\.\.' "$tmp/mutants"
	rc=$?
	check "$(grep -c '^ok' "$tmp/mutants") mistakes in the sources are found" $rc
fi
echo "1..$n"
