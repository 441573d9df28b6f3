#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Short trainings on the emulated GPU against the CPU: the layouts, precisions
# and recordings of a GPU, with kernels and memory checked.
PLAIT_TEST_GPU=1
export PLAIT_TEST_GPU
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
. "$top_srcdir/tests/gpu/gpu.sh"
# find tests/gpu/emulated/plait-train first
PATH=$top_builddir/tests/gpu/emulated:$PATH

plait-prep "$top_srcdir/LICENSE" --out "$work/data" >/dev/null || exit 99

# config FAMILY: a configuration. Heads are of 64, which the tensor cores'
# attention needs. moe: llama with experts; gelu-moe: gpt2 whose experts drop
# tokens; drops: gpt2 with dropout; mtp: llama that predicts a token further;
# deep: llama with enough layers for two chunks on two stages
config()
{
	layers=2
	case $1 in
	deep)
		layers=4
		set -- llama ", ffn: 128"
		;;
	moe) set -- llama ", ffn: 64, experts: 4, experts_top_k: 2" ;;
	gelu-moe) set -- gpt2 ", ffn: 64, experts: 4, experts_capacity: 1.0" ;;
	drops)
		set -- gpt2 ", ffn: 128, dropout: 0.2, attention_dropout: 0.3"
		;;
	mtp) set -- llama ", ffn: 128, mtp_layers: 1, mtp_loss: 0.3" ;;
	*) set -- "$1" ", ffn: 128" ;;
	esac
	cat <<-END
	model: {family: $1, layers: $layers, hidden: 128, heads: 2, vocab: 257, seq_len: 16$2}
	data: {train: "$work/data/train.bin"}
	train: {steps: 3, global_batch: 4, micro_batch: 2, seed: 7}
	optim: {lr: 1.0e-3}
	lr: {warmup: 1}
	END
}

# train NAME FAMILY RANKS DEVICE SETTING..: metrics in $work/NAME; $resume: from
# which checkpoint
resume=none
train()
{
	name=$1 family=$2 ranks=$3 device=$4
	shift 4
	config "$family" >"$work/$family.yaml"
	set -- $(printf -- '--set %s ' train.steps=3 "$@")
	launch=
	[ "$ranks" -eq 1 ] || launch="sh $top_srcdir/tests/lib/mpirun.sh $ranks"
	PLAIT_SHARE_GPUS=$shared EMULATED_GPUS=4 \
		EMULATED_CALLS=$work/calls $launch plait-train "$work/$family.yaml" \
		--resume $resume --device "$device" --metrics "$work/$name" "$@" \
		>"$work/out" 2>&1
	status=$?
	[ $status -eq 0 ] && [ "$device" = cuda ] &&
		grep '^left-.* [^0]' "$work/calls" >>"$work/out" && status=1
	[ $status -eq 0 ] || sed 's/^/# /' "$work/out"
	return $status
}

# near TOLERANCE FAMILY RANKS SETTING..: whether losses are those of one process
# on the CPU in fp32
near()
{
	[ -f "$work/cpu-$2" ] || train "cpu-$2" "$2" 1 cpu
	tolerance=$1 family=$2 ranks=$3
	shift 3
	train cuda "$family" "$ranks" cuda "$@" &&
		agree "$work/cuda" "$work/cpu-$family" "$tolerance"
	report $? "$family, $ranks ranks: $*"
}

# recorded TOLERANCE FAMILY RANKS SETTING..: as near; and all of a step, with
# its transfers, is recorded as graphs by default
recorded()
{
	near "$@"
	grep -q '^recorded as graphs: forward, backward and optimizer$' \
		"$work/out" && ! grep 'without graphs' "$work/out"
	report $? "... as graphs"
}

# staged FAMILY SETTING..: as recorded, in two stages with four micro-batches
# each; losses equal those without graphs
staged()
{
	staged=$1
	shift
	set -- parallel.pp=2 train.micro_batch=1 "$@"
	recorded 1e-4 "$staged" 2 "$@"
	mv "$work/cuda" "$work/graphs"
	train cuda "$staged" 2 cuda train.graph=off "$@" &&
		agree "$work/graphs" "$work/cuda" 0
	report $? "... the same without graphs"
}

# goes_on FAMILY SETTING..: losses are near those of one process on the CPU, and a
# run that begins again after its step 2 ends in the same state
goes_on()
{
	family=$1
	shift
	settings=$*
	[ -f "$work/cpu-$family" ] || train "cpu-$family" "$family" 1 cpu
	set -- train.deterministic=true "checkpoint.dir=$work/saved" \
		checkpoint.every=2 "$@"
	rm -rf "$work/saved"
	train cuda "$family" 1 cuda "$@" &&
		agree "$work/cuda" "$work/cpu-$family" 1e-4
	report $? "$family: $settings"
	grep '^state after step 3' "$work/out" >"$work/state"
	rm -rf "$work/saved/step-00000003"
	resume=auto
	train cuda "$family" 1 cuda "$@" &&
		grep -q '^resumed after step 2$' "$work/out" &&
		[ -s "$work/state" ] &&
		grep '^state after step 3' "$work/out" | cmp -s - "$work/state"
	report $? "... resumed after step 2, by the same bits"
	resume=none
}

# overflows RANKS SETTING..: in fp16, with a loss scale at which gradients
# overflow, the same steps are skipped as by one process on the CPU
overflows()
{
	ranks=$1
	shift
	set -- train.precision=fp16 train.loss_scale=16777216 "$@"
	[ -f "$work/cpu-fp16" ] || train cpu-fp16 gpt2 1 cpu \
		train.precision=fp16 train.loss_scale=16777216
	train cuda gpt2 "$ranks" cuda "$@" &&
		agree "$work/cuda" "$work/cpu-fp16" 2e-2 &&
		grep -n -o skipped "$work/cpu-fp16" >"$work/skipped" &&
		grep -n -o skipped "$work/cuda" | diff - "$work/skipped"
	report $? "$ranks ranks, fp16 that overflows: $*"
}

# Prompts have no loss; in each batch they are another share.
seq 300 | awk '{
	for (p = ""; length(p) < 15 * ($1 % 7); p = p " and a prompt")
		;
	printf "{\"prompt\": \"%s\", \"completion\": \"%d and text\"}\n", p, $1
}' >"$work/prompts.jsonl"
plait-prep "$work/prompts.jsonl" --prompt-field prompt --out "$work/prompts" \
	>/dev/null || exit 99

# prompts RANKS SETTING..: with prompts and experts, losses are those of as many
# ranks on the CPU, and the last step records no graph
prompts()
{
	ranks=$1
	shift
	settings=$*
	set -- "data.train=$work/prompts/train.bin" train.steps=8 \
		model.seq_len=32 "$@"
	train cpu-prompts moe "$ranks" cpu "$@" &&
		train cuda moe "$ranks" cuda "$@" &&
		agree "$work/cuda" "$work/cpu-prompts" 1e-4 &&
		! grep '^cudaGraphInstantiate.* [^0]' "$work/calls"
	report $? "moe and prompts, $ranks ranks: $settings"
}

# in_turn: with a driver that puts the transfers of a graph one after another,
# gradients are not reduced in one
in_turn()
{
	EMULATED_DRIVER=12080 train cuda llama 4 cuda parallel.tp=2 \
		parallel.dp=2 &&
		grep -q '^recorded as graphs: .*; before NCCL 2.27.3' \
			"$work/out"
	report $? "graphs without the reduction of gradients, and why"
}

EMULATED_DRIVER=13000
export EMULATED_DRIVER
# 1: the ranks share a GPU and communicate by MPI; 0: by NCCL
shared=0
near 1e-4 gpt2 1
near 2e-2 gpt2 1 train.precision=bf16
near 2e-2 llama 1 train.precision=bf16
near 3e-2 llama 1 train.precision=fp8
near 1e-4 llama 1 parallel.offload=both
goes_on llama parallel.offload=both optim.moments=bf16
near 1e-4 drops 1 train.graph=on
near 2e-2 drops 1 train.precision=bf16 train.graph=on
near 2e-2 moe 1 train.precision=bf16 train.graph=on
near 1e-4 gelu-moe 1 train.graph=on
near 2e-2 mtp 1 train.precision=bf16 train.graph=on
near 1e-3 moe 1 train.precision=tf32
prompts 1
overflows 1
train windows llama 1 cuda train.precision=bf16 model.sliding_window=8 &&
	grep -q '^attention: own kernels (configured without cuDNN)$' "$work/out"
report $? "windows have own kernels only where cuDNN is missing"
if command -v mpirun >/dev/null && grep -q 'define HAVE_MPI 1' \
	"$top_builddir/config.h"; then
	recorded 2e-2 gpt2 2 parallel.tp=2 parallel.sequence=true \
		train.precision=bf16
	recorded 1e-4 gpt2 4 parallel.tp=2 parallel.pp=2
	staged llama
	staged deep parallel.schedule=interleaved parallel.virtual=2 \
		parallel.recompute=full
	staged gpt2 parallel.schedule=zb-h1
	staged drops
	staged mtp
	overflows 2 parallel.dp=2 parallel.zero=1
	recorded 1e-4 llama 2 parallel.cp=2
	recorded 1e-4 llama 2 parallel.dp=2 parallel.zero=2
	recorded 1e-4 llama 4 parallel.tp=2 parallel.dp=2 parallel.zero=3
	recorded 1e-4 llama 4 parallel.pp=2 parallel.dp=2 parallel.zero=3 \
		train.micro_batch=1
	recorded 1e-4 mtp 2 parallel.dp=2 parallel.zero=3
	in_turn
	near 1e-4 moe 2 parallel.dp=2 parallel.ep=2
	prompts 2 parallel.dp=2 sync.mode=local sync.steps=4 \
		train.micro_batch=1
	near 3e-2 gpt2 2 parallel.tp=2 parallel.sequence=true \
		train.precision=fp8
	near 3e-2 deep 2 parallel.pp=2 parallel.schedule=zb-h1 \
		train.precision=fp8
	shared=1
	near 1e-4 gpt2 2 parallel.tp=2
else
	skip "several ranks need MPI"
fi
echo "1..$count"
