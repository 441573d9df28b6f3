#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Counts the calls of CUDA, cuBLASLt and NCCL that the host makes in a step, per
# layer and outside of layers, and fails if there are more than in
# tests/gpu/emulated/calls.table. The model has two heads; a step has two
# micro-batches; in a pipeline, the first of `stages` is counted.
# usage: calls.sh [--table]: prints a new table, also of layouts that take too
# long for the test
PLAIT_TEST_GPU=1
export PLAIT_TEST_GPU
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
. "$top_srcdir/tests/gpu/gpu.sh"
PATH=$top_builddir/tests/gpu/emulated:$PATH
table=$top_srcdir/tests/gpu/emulated/calls.table

plait-prep "$top_srcdir/LICENSE" --out "$work/data" >/dev/null || exit 99

stages=1

# count NAME RANKS LAYERS SETTING..: write the calls of a step to
# $work/NAME.LAYERS
count()
{
	name=$1 ranks=$2 layers=$3
	shift 3
	cat >"$work/job.yaml" <<-END
	model: {family: llama, layers: $((layers * stages)), hidden: 32, heads: 2, vocab: 257, seq_len: 16}
	data: {train: "$work/data/train.bin"}
	train: {steps: 4, global_batch: 2, micro_batch: 1, seed: 7, precision: bf16}
	END
	set -- $(printf -- '--set %s ' "$@")
	launch=
	[ "$ranks" -eq 1 ] || launch="sh $top_srcdir/tests/lib/mpirun.sh $ranks"
	EMULATED_GPUS=4 EMULATED_CALLS=$work/$name.$layers $launch plait-train \
		"$work/job.yaml" --resume none --device cuda "$@" \
		>"$work/out" 2>&1 || sed 's/^/# /' "$work/out"
}

# layout NAME RANKS SETTING..: print the table's lines of a layout
layout()
{
	layout=$1 ranks=$2
	shift 2
	count "$layout" "$ranks" 1 "$@"
	count "$layout" "$ranks" 2 "$@"
	awk -v layout="$layout" '
	/^left-/ { next }
	{ all[$1] }
	FILENAME == ARGV[1] { one[$1] = $2; next }
	{ two[$1] = $2 }
	END {
		for (c in all)
			print layout, c, two[c] - one[c], 2 * one[c] - two[c]
	}' "$work/$layout.1" "$work/$layout.2" | sort
}

# figures CHUNKS: a site's figures of GPU and links with which CHUNKS chunks are
# best for 512 rows
figures()
{
	case $1 in
	1) us=100000 ;;
	2) us=3000 ;;
	4) us=10 ;;
	esac
	echo "gpu_types: {h100: {tflops: 0.001, link_gbps: 0.01, link_us: $us}}"
}

layouts()
{
	layout plain 1 train.graph=off
	layout graphs 1 train.graph=on
	layout experts 1 train.graph=off model.experts=4
	layout experts-graphs 1 train.graph=on model.experts=4
	command -v mpirun >/dev/null &&
		grep -q 'define HAVE_MPI 1' "$top_builddir/config.h" || return 0
	layout tp2-sequence 2 parallel.tp=2 parallel.sequence=true \
		train.graph=off
	stages=2
	layout pp2-graphs 2 parallel.pp=2 train.graph=on
	[ -n "${1-}" ] || return 0
	layout pp2 2 parallel.pp=2 train.graph=off
	stages=1
	layout tp2-sequence-graphs 2 parallel.tp=2 parallel.sequence=true \
		train.graph=on
	PLAIT_SITE=$work/site.yaml
	export PLAIT_SITE
	for chunks in 1 2 4; do
		figures $chunks >"$PLAIT_SITE"
		layout "tp2-sequence-$chunks" 2 parallel.tp=2 \
			parallel.sequence=true train.graph=off \
			train.micro_batch=32 train.global_batch=64
	done
	unset PLAIT_SITE
	layout dp2-zero3 2 parallel.dp=2 parallel.zero=3 train.graph=off
}

layouts ${1+all} >"$work/now"
[ -z "${1-}" ] || { cat "$work/now"; exit 0; }

# more FILE: print the calls of which FILE has more than the table
more()
{
	awk '
	/^#/ { next }
	FILENAME == ARGV[1] {
		layer[$1, $2] = $3; step[$1, $2] = $4; next
	}
	$3 > layer[$1, $2] + 0 || $3 + $4 > layer[$1, $2] + step[$1, $2] {
		printf "# %s: %s %d a layer and %d a step, the table has %d and %d\n",
		    $1, $2, $3, $4, layer[$1, $2], step[$1, $2]
		bad = 1
	}
	END { exit bad }' "$table" "$1"
}

[ "$(grep -c ' a-kernel ' "$work/now")" -ge 2 ]
report $? "the calls of a step are counted"
more "$work/now"
report $? "the host makes no more calls than the table knows of"
sed 's/^plain a-kernel \([0-9]*\)/plain a-kernel 1\1/' "$work/now" >"$work/bad"
! more "$work/bad" >/dev/null
report $? "one that makes more is found"
echo "1..$count"
