#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The code around the kernels, on the emulated GPU; and GPUs that are missing,
# do not work or are too old.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

"$top_builddir/tests/gpu/emulated/test_runtime" >"$tmp/out"
status=$?
sed 's/^\(not \)\{0,1\}ok/# &/; /^1\.\./d' "$tmp/out"
check "plans and recordings" $status

"$top_builddir/plait-prep" "$top_srcdir/LICENSE" --out "$tmp/data" \
	>/dev/null || exit 99
cat >"$tmp/job.yaml" <<-END
	model: {family: gpt2, layers: 1, hidden: 16, heads: 1, vocab: 257, seq_len: 8}
	data: {train: "$tmp/data/train.bin"}
	train: {steps: 1, global_batch: 1, micro_batch: 1}
END

# with GPU DEVICE CODE WORDS: plait-train exits with CODE and prints WORDS
with()
{
	EMULATED_GPU=$1 "$top_builddir/tests/gpu/emulated/plait-train" "$tmp/job.yaml" \
		--resume none --device "$2" >"$tmp/out" 2>&1
	[ $? = "$3" ] && grep -qF -- "$4" "$tmp/out"
	check "a GPU that is $1, --device $2" $?
}

with fine auto 0 'step'
with none auto 0 'step'
with none cuda 1 '--device cuda: no CUDA-capable device is detected'
with broken auto 1 \
	'there is a GPU, but it cannot be used: system not yet initialized'
with broken cpu 0 'step'
with old auto 1 'needs compute capability 8.0'

# Runs two ranks, rank 1 with EMULATED_GPU=$gpu1; with $apart each rank has its
# own GPU. The launcher must soon end with a failure and print one line with
# WORDS.
cat >"$tmp/rank" <<-'END'
	if [ "${PLAIT_RANK-${OMPI_COMM_WORLD_RANK-}}" = 1 ]; then
		EMULATED_GPU=$gpu1
		export EMULATED_GPU
	fi
	[ -z "${apart-}" ] ||
		export CUDA_VISIBLE_DEVICES="${PLAIT_RANK-$OMPI_COMM_WORLD_RANK}"
	exec "$top_builddir/tests/gpu/emulated/plait-train" "$@"
END
export gpu1 apart
two() # NAME WORDS DEVICE LAUNCHER..
{
	name=$1 words=$2 device=$3
	shift 3
	timeout 240 "$@" sh "$tmp/rank" "$tmp/job.yaml" --resume none \
		--set train.global_batch=2 --device "$device" >"$tmp/out" 2>&1
	status=$?
	[ $status != 0 ] && [ $status != 124 ] &&
		[ "$(grep -c '^plait-train: ' "$tmp/out")" = 1 ] &&
		grep -q -- "^plait-train: $words" "$tmp/out"
	check "two ranks, $name: $words" $? || sed "s/^/# $status: /" "$tmp/out"
}
run="$top_builddir/plait run --np 2 --dp=2 --"

gpu1=none
two "one without a GPU" '--device cuda: no CUDA-capable device' cuda $run
gpu1=broken
two "one with a broken GPU" '--device cuda: system not yet initialized' cuda \
	$run
gpu1=fine
two "one GPU for both" \
	'ranks 0 and 1 have the same GPU, 0000:07:00.0 (emulated GPU): ask' \
	cuda $run
export EMULATED_GPUS=2
mkdir "$tmp/alone"
ln -s "$PLAIT_MODULE_PATH/plait_cuda.so" "$tmp/alone"
all=$PLAIT_MODULE_PATH
PLAIT_MODULE_PATH=$tmp/alone
two "no NCCL" 'NCCL, which several GPUs need, is missing on rank 0: ' cuda $run
PLAIT_MODULE_PATH=$all
for apart in '' 1; do
	timeout 240 $run sh "$tmp/rank" "$tmp/job.yaml" --resume none \
		--set train.global_batch=2 --device cuda >"$tmp/out" 2>&1
	check "two ranks with a GPU each${apart:+, which is all they see}" $? ||
		sed 's/^/# /' "$tmp/out"
done
apart=
# The last rank's GPU refuses all recordings after the first $graphs.
cat >"$tmp/refusing" <<-'END'
	[ "$PLAIT_RANK" = 0 ] || export EMULATED_GRAPHS=$graphs
	exec "$top_builddir/tests/gpu/emulated/plait-train" "$@"
END
export graphs
# result OUT: the hash of the trained weights and state, and the losses
result()
{
	sed -n 's/.*"loss":\([^,}]*\).*/\1/p' "$1.json"
	grep '^state after step ' "$1"
}
# refused SETTING..: two ranks, of which the last refuses the first recording,
# the second, .. the last, train as without graphs
refused()
{
	set -- $(printf -- '--set %s ' train.steps=3 train.global_batch=4 \
		train.deterministic=true "$@")
	graphs=0
	rm -f "$tmp/off.json"
	timeout 240 $run sh "$tmp/refusing" "$tmp/job.yaml" --resume none \
		--device cuda --metrics "$tmp/off.json" "$@" \
		--set train.graph=off >"$tmp/off" 2>&1
	check "two ranks, no graphs: $*" $? || sed 's/^/# /' "$tmp/off"
	while :; do
		rm -f "$tmp/out.json"
		timeout 240 $run sh "$tmp/refusing" "$tmp/job.yaml" \
			--resume none --device cuda --metrics "$tmp/out.json" \
			"$@" >"$tmp/out" 2>&1
		status=$?
		grep -q 'steps run without graphs: ' "$tmp/out" || break
		[ $status = 0 ] && [ "$(grep -c \
			'steps run without graphs: graph_end: ' "$tmp/out")" = 1 ] &&
			[ "$(result "$tmp/off")" = "$(result "$tmp/out")" ]
		check "... recording $((graphs + 1)) is refused: none is made, one line says it, and nothing else changes" \
			$? || sed 's/^/# /' "$tmp/off" "$tmp/out"
		graphs=$((graphs + 1))
	done
	[ $status = 0 ] && [ $graphs -gt 0 ] &&
		grep -q 'recorded as graphs: forward, backward' "$tmp/out" &&
		[ "$(result "$tmp/off")" = "$(result "$tmp/out")" ]
	check "... all $graphs are made" $? || sed 's/^/# /' "$tmp/out"
}
refused parallel.zero=0
refused parallel.zero=1
run="$top_builddir/plait run --np 2 --pp=2 --"
refused model.layers=2 parallel.zero=2
if command -v mpirun >/dev/null &&
	grep -q 'define HAVE_MPI 1' "$top_builddir/config.h"; then
	mpi="sh $top_srcdir/tests/lib/mpirun.sh 2"
	gpu1=none
	two "one without a GPU" 'rank 1 finds no GPU, and other ranks have one: no CUDA' \
		auto $mpi
	gpu1=broken
	two "one with a broken GPU" 'there is a GPU, but it cannot be used' auto $mpi
fi
echo "1..$n"
