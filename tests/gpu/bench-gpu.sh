#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make bench-gpu: every kernel against the GPU's measured ceilings, then
# whole training steps. Tokens are bytes of a generated text; the shapes of
# the models are the real ones.
PATH=$top_builddir:$PATH
work=$(mktemp -d "${TMPDIR:-/tmp}/plait-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
PLAIT_MODULE_PATH=$top_builddir/.libs
export PLAIT_MODULE_PATH

"$top_builddir/tests/gpu/bench_gpu" || exit 1
seq 1 400000 >"$work/text"
plait-prep "$work/text" --out "$work/data" >/dev/null || exit 1

# bench NAME MODEL GLOBAL MICRO: the median of the last steps
bench()
{
	cat >"$work/$1.yaml" <<-END
	model: $2
	data: {train: "$work/data/train.bin", val: "$work/data/val.bin"}
	train: {steps: 20, global_batch: $3, micro_batch: $4, precision: bf16}
	END
	plait-train "$work/$1.yaml" --device cuda --resume none \
		--metrics "$work/$1.jsonl" >"$work/out" 2>&1 || {
		cat "$work/out" >&2
		return 1
	}
	tail -n 15 "$work/$1.jsonl" | sed \
		's/.*"tokens_per_s":\([^,}]*\).*"mfu":\([^,}]*\).*"mem_bytes":\([^,}]*\).*/\1 \2 \3/' |
		sort -n | sed -n 8p | awk -v name="$1" '{
		printf "| %s | %.0f | %.1f %% | %.1f |\n", name, $1, $2 * 100,
			$3 / 2^30 }'
}

echo
echo "MFU here is against the measured product above, not a data sheet."
echo
echo "| model, bf16, one GPU | tokens/s | MFU | memory, GiB |"
echo "|---|---|---|---|"
bench gpt2-124M "{family: gpt2, layers: 12, hidden: 768, heads: 12, vocab: 50304, seq_len: 1024}" 64 32 &&
bench gpt2-1.5B "{family: gpt2, layers: 48, hidden: 1600, heads: 25, vocab: 50304, seq_len: 1024}" 16 8 &&
bench 8B-blocks "{family: llama, layers: 6, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 1024, seq_len: 8192}" 2 1
