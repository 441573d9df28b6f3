#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make bench-gpu: every kernel against the GPU's measured ceilings, then
# whole training steps, beside PyTorch where there is one for this GPU
# (TORCH_PYTHON names its python). Tokens are bytes of a generated text; the
# shapes of the models are the real ones.
PATH=$top_builddir:$PATH
work=$(mktemp -d "${TMPDIR:-/tmp}/plait-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
PLAIT_MODULE_PATH=$top_builddir/.libs
export PLAIT_MODULE_PATH
python=${TORCH_PYTHON:-python3}

"$top_builddir/tests/gpu/bench_gpu" || exit 1
seq 1 400000 >"$work/text"
plait-prep "$work/text" --out "$work/data" >/dev/null || exit 1

# Dense bf16 TFLOP/s that the data sheet of this GPU gives, 0: not known here.
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0 2>/dev/null)
case $gpu in
*H200* | *H100*HBM3*) sheet=989 ;;
*A100*) sheet=312 ;;
*) sheet=0 ;;
esac

# plait NAME MODEL GLOBAL MICRO [OPTIONS..]: the median step of the last 15,
# as "tokens/s MFU TFLOP/s GiB" in $work/result
plait()
{
	name=$1
	cat >"$work/$name.yaml" <<-END
	model: $2
	data: {train: "$work/data/train.bin", val: "$work/data/val.bin"}
	train: {steps: 20, global_batch: $3, micro_batch: $4, precision: bf16}
	END
	shift 4
	rm -f "$work/$name.jsonl"
	plait-train "$work/$name.yaml" --device cuda --resume none \
		--metrics "$work/$name.jsonl" "$@" >"$work/out" 2>&1 || {
		cat "$work/out" >&2
		return 1
	}
	peak=$(sed -n 's/.*MFU against \([^ ]*\) GFLOP.*/\1/p' "$work/out")
	tail -n 15 "$work/$name.jsonl" | sed \
		's/.*"tokens_per_s":\([^,}]*\).*"mfu":\([^,}]*\).*"mem_bytes":\([^,}]*\).*/\1 \2 \3/' |
		sort -n | sed -n 8p | awk -v peak="$peak" '{
		printf "%.0f %.4f %.1f %.1f\n", $1, $2, $2 * peak / 1000,
			$3 / 2^30 }' >"$work/result"
}

# row NAME MODEL GLOBAL MICRO [OPTIONS..]
row()
{
	plait "$@" || return 1
	awk -v name="$1" -v sheet=$sheet '{
		printf "| %s | %d | %.1f %% | ", name, $1, $2 * 100
		if (sheet > 0)
			printf "%.1f %% | %.1f |\n", $3 / sheet * 100, $4
		else
			printf "- | %.1f |\n", $4
	}' "$work/result"
}

# middle FILE: the median of the numbers in it
middle()
{
	sort -n "$1" | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

# peer NAME MODEL GLOBAL MICRO LAYERS HIDDEN HEADS VOCAB SEQ_LEN: three turns
# each, one after the other
peer()
{
	: >"$work/ours"
	: >"$work/theirs"
	for turn in 1 2 3; do
		plait "$1" "$2" "$3" "$4" || return 1
		cut -d' ' -f1 "$work/result" >>"$work/ours"
		"$python" "$top_srcdir/tests/gpu/nanogpt_peer.py" \
			"$5" "$6" "$7" "$8" "$9" "$3" "$4" \
			>"$work/torch" 2>"$work/out" || {
			tail -n 3 "$work/out" >&2
			echo "| $1 | $(middle "$work/ours") | failed | |"
			return 0
		}
		cat "$work/torch" >>"$work/theirs"
	done
	ours=$(middle "$work/ours") theirs=$(middle "$work/theirs")
	awk -v name="$1" -v a="$ours" -v b="$theirs" 'BEGIN {
		printf "| %s | %d | %d | %.2f |\n", name, a, b, a / b }'
}

small="{family: gpt2, layers: 6, hidden: 384, heads: 6, vocab: 50304, seq_len: 256}"
gpt2="{family: gpt2, layers: 12, hidden: 768, heads: 12, vocab: 50304, seq_len: 1024}"
gpt2_xl="{family: gpt2, layers: 48, hidden: 1600, heads: 25, vocab: 50304, seq_len: 1024}"
llama="{family: llama, layers: 6, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 1024, seq_len: 8192}"

cat <<END

MFU counts attention in full. It is given against the measured product above
and against the data sheet of ${gpu:-this GPU} ($sheet TFLOP/s, 0: not known).

| model, bf16, one GPU | tokens/s | MFU, measured | MFU, data sheet | memory, GiB |
|---|---|---|---|---|
END
row "6 layers, 384 wide, without graphs" "$small" 12 12 --set train.graph=off &&
row "6 layers, 384 wide" "$small" 12 12 --set train.graph=on &&
row "gpt2-124M, without graphs" "$gpt2" 64 32 --set train.graph=off &&
row "gpt2-124M" "$gpt2" 64 32 --set train.graph=on || exit 1
if grep -q 'define HAVE_CUDNN 1' "$top_builddir/config.h"; then
	export PLAIT_ATTENTION=cudnn
	row "gpt2-124M, attention by cuDNN" "$gpt2" 64 32 \
		--set train.graph=on || exit 1
	export PLAIT_ATTENTION=own
fi
row "gpt2-1.5B" "$gpt2_xl" 16 8 --set train.graph=on &&
row "8B-blocks" "$llama" 2 1 --set train.graph=on || exit 1

cat <<END

llm.c, from its published runs: 124M at 8 x 64 x 1024 tokens 218k tokens/s per
A100 and 468k per H100; 1558M 47k to 49k per H100.

END
if ! "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' \
	2>/dev/null; then
	echo "PyTorch: missing ($python has none for this GPU; TORCH_PYTHON" \
		"names another)"
	exit 0
fi
echo "PyTorch is nanoGPT's recipe: torch.compile, flash attention, fused AdamW."
echo
echo "| model, bf16, one GPU | tokens/s | $("$python" -c \
	'import torch; print("PyTorch", torch.__version__)') | ratio |"
echo "|---|---|---|---|"
peer "6 layers, 384 wide" "$small" 12 12 6 384 6 50304 256 &&
peer gpt2-124M "$gpt2" 64 32 12 768 12 50304 1024 &&
peer gpt2-1.5B "$gpt2_xl" 16 8 48 1600 25 50304 1024
