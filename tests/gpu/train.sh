#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training on a GPU against training on the CPU, and ranks that share a GPU
# against one rank.
. "$top_srcdir/tests/gpu/gpu.sh"

plait-prep "$top_srcdir/LICENSE" --out "$work/data" >/dev/null || exit 99

# config FAMILY
config()
{
	cat <<-END
	model: {family: $1, layers: 4, hidden: 256, heads: 4, vocab: 257, seq_len: 128}
	data: {train: "$work/data/train.bin", val: "$work/data/val.bin"}
	train: {steps: 10, global_batch: 8, micro_batch: 2, seed: 7}
	optim: {lr: 1.0e-3}
	lr: {warmup: 3}
	END
}

# train NAME FAMILY OPTIONS..: metrics in $work/NAME
train()
{
	name=$1 family=$2
	shift 2
	rm -f "$work/$name"
	config "$family" >"$work/$family.yaml"
	$launch plait-train "$work/$family.yaml" --resume none \
		--metrics "$work/$name" "$@" >"$work/out" 2>&1
	status=$?
	[ $status -eq 0 ] || sed 's/^/# /' "$work/out"
	return $status
}

launch=
for family in gpt2 llama; do
	train cpu-$family $family --device cpu
	# Without train.deterministic a first run searches for products, and
	# a second one uses what it found.
	train cuda-$family $family --device cuda \
		--set train.deterministic=true &&
		agree "$work/cuda-$family" "$work/cpu-$family" 1e-3
	report $? "$family: fp32 on the GPU as on the CPU"
	train again $family --device cuda --set train.deterministic=true &&
		losses "$work/again" >"$work/x" &&
		losses "$work/cuda-$family" | cmp -s - "$work/x"
	report $? "$family: a second run gives the same bits"
	train plain $family --device cuda --set train.deterministic=true \
		--set train.graph=off &&
		losses "$work/plain" >"$work/x" &&
		losses "$work/cuda-$family" | cmp -s - "$work/x"
	report $? "$family: without graphs the same bits"
	train away $family --device cuda --set train.deterministic=true \
		--set parallel.offload=activations &&
		losses "$work/away" >"$work/x" &&
		losses "$work/cuda-$family" | cmp -s - "$work/x"
	report $? "$family: activations offloaded, the same bits"
	train away $family --device cuda --set parallel.offload=both &&
		agree "$work/away" "$work/cuda-$family" 1e-3
	report $? "$family: the optimizer offloaded, too"
	for precision in bf16 fp16 fp8; do
		train $precision $family --device cuda \
			--set train.precision=$precision &&
			agree "$work/$precision" "$work/cpu-$family" 2e-2
		status=$?
		if grep -q 'is not there yet\|fp8 needs a GPU' "$work/out"; then
			skip "$(cat "$work/out")"
		else
			report $status "$family: $precision near fp32 on the CPU"
		fi
	done
done

# shared RANKS SETTINGS..: RANKS ranks on one GPU against one rank
shared()
{
	n=$1
	shift
	launch="sh $top_srcdir/tests/lib/mpirun.sh $n"
	set -- $(printf -- '--set %s ' "$@")
	PLAIT_SHARE_GPUS=1 train shared gpt2 --device cuda "$@" &&
		agree "$work/shared" "$work/cuda-gpt2" 2e-5
	report $? "$n ranks share a GPU: $*"
	launch=
}

# apart RANKS SETTINGS..: ranks with a GPU each over NCCL against one rank, with
# all of a step recorded
apart()
{
	n=$1
	shift
	if [ "$gpus" -lt "$n" ]; then
		skip "$n GPUs are not there: $*"
		return
	fi
	launch="sh $top_srcdir/tests/lib/mpirun.sh $n"
	set -- $(printf -- '--set %s ' "$@")
	for graph in off on; do
		train apart gpt2 --device cuda "$@" \
			--set train.graph=$graph &&
			agree "$work/apart" "$work/cuda-gpt2" 2e-5
		report $? "$n GPUs, train.graph $graph: $*"
	done
	launch=
}

# visible GPUs; the machine may have more
gpus=$("$top_builddir/tests/gpu/gpu_facts" --count)
if command -v mpirun >/dev/null && grep -q 'define HAVE_MPI 1' \
	"$top_builddir/config.h"; then
	shared 2 parallel.tp=2
	shared 2 parallel.tp=2 parallel.sequence=true
	shared 2 parallel.pp=2
	shared 2 parallel.dp=2
	shared 2 parallel.dp=2 train.micro_batch=1
	shared 2 parallel.dp=2 parallel.zero=1
	shared 4 parallel.tp=2 parallel.pp=2 parallel.schedule=gpipe
	apart 2 parallel.tp=2
	apart 2 parallel.tp=2 parallel.sequence=true
	apart 2 parallel.cp=2
	apart 2 parallel.dp=2 train.micro_batch=1
	apart 2 parallel.dp=2 parallel.zero=1
	apart 2 parallel.dp=2 parallel.zero=2
	apart 2 parallel.dp=2 parallel.zero=3 train.micro_batch=1
	apart 4 parallel.tp=2 parallel.dp=2 parallel.zero=3
else
	skip "ranks that share a GPU need MPI"
fi
echo "1..$count"
