#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make bench-gpu: measure every kernel against the GPU's measured ceilings, then
# whole training steps, next to PyTorch if one for this GPU is installed
# (TORCH_PYTHON names its python), and compare with the targets. Models have
# their real shapes; tokens are the bytes of a generated text.
# BENCH_GPU=short: each model once, and one turn against PyTorch.
PATH=$top_builddir:$PATH
work=$(mktemp -d "${TMPDIR:-/tmp}/plait-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
PLAIT_MODULE_PATH=$top_builddir/.libs
PLAIT_MATMUL_CACHE=$work/matmuls
PLAIT_ATTENTION=own
export PLAIT_MODULE_PATH PLAIT_MATMUL_CACHE PLAIT_ATTENTION
python=${TORCH_PYTHON:-python3}
failed=0
short=
[ "${BENCH_GPU-}" != short ] || short=1
cudnn=
! PLAIT_ATTENTION= "$top_builddir/tests/gpu/gpu_facts" 2>/dev/null |
	grep -q '"attention": "cuDNN' || cudnn=1
[ "$short$cudnn" != 11 ] || PLAIT_ATTENTION=cudnn

"$top_builddir/tests/gpu/bench_gpu" || exit 1
head -c 3000000 /dev/urandom | base64 >"$work/text"
plait-prep "$work/text" --out "$work/data" >/dev/null || exit 1

# This GPU's dense bf16 TFLOP/s by its data sheet; 0: unknown.
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0 2>/dev/null)
case $gpu in
*H200* | *H100*HBM3*) sheet=989 ;;
*H100*NVL*) sheet=835 ;;
*H100*PCIe*) sheet=756 ;;
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
		failed=1
		return 1
	}
	# warnings: something was not done as asked for
	grep '^plait-train:' "$work/out" >&2
	peak=$(sed -n 's/.*MFU against \([^ ]*\) GFLOP.*/\1/p' "$work/out")
	tail -n 15 "$work/$name.jsonl" | sed \
		's/.*"tokens_per_s":\([^,}]*\).*"mfu":\([^,}]*\).*"mem_bytes":\([^,}]*\).*/\1 \2 \3/' |
		sort -n | sed -n 8p | awk -v peak="$peak" '{
		printf "%.0f %.4f %.1f %.1f\n", $1, $2, $2 * peak / 1000,
			$3 / 2^30 }' >"$work/result"
}

# number KEY MODEL: the value of a key of the model
number()
{
	echo "$2" | sed "s/.*[{ ]$1: \([0-9]*\).*/\1/"
}

# The MFU of $work/result against the data sheet, in percent; 0: unknown.
sheet_mfu()
{
	awk -v sheet=$sheet '{ print (sheet > 0 ? $3 / sheet * 100 : 0) }' \
		"$work/result"
}

# row NAME MODEL GLOBAL MICRO [OPTIONS..]: print a line of the table and keep
# its numbers in $work/result, which is missing after a failure
row()
{
	rm -f "$work/result"
	plait "$@" || {
		echo "| $1 | failed: $(tail -n 1 "$work/out") | | | | |"
		return 1
	}
	# FLOPs per token of the half of attention that a causal mask leaves out
	half=$(awk -v l="$(number layers "$2")" -v h="$(number hidden "$2")" \
		-v t="$(number seq_len "$2")" 'BEGIN { print 6 * l * h * t }')
	awk -v name="$1" -v sheet=$sheet -v half="$half" '{
		printf "| %s | %d | %.1f %% | ", name, $1, $2 * 100
		if (sheet > 0)
			printf "%.1f %% | %.1f %% | %.1f |\n", $3 / sheet * 100,
				($3 - $1 * half / 1e12) / sheet * 100, $4
		else
			printf "- | - | %.1f |\n", $4
	}' "$work/result"
}

# keep NAME: keep the last row's tokens/s and MFU as NAME's if they are the best
# so far
keep()
{
	[ -f "$work/result" ] || return 0
	set -- "$1" "$(cut -d' ' -f1 "$work/result")" "$(sheet_mfu)"
	if [ ! -f "$work/$1.best" ] || awk -v a="$2" \
		'{ exit a <= $1 }' "$work/$1.best"; then
		echo "$2 $3 $PLAIT_ATTENTION" >"$work/$1.best"
	fi
}

# middle FILE: the median of the numbers in it
middle()
{
	sort -n "$1" | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

# peer NAME MODEL GLOBAL MICRO: three runs of Plait and of PyTorch, alternately
peer()
{
	: >"$work/ours"
	: >"$work/theirs"
	for turn in 1 ${short:+x} 2 3; do
		[ "$turn" != x ] || break
		plait "$1" "$2" "$3" "$4" || return 1
		cut -d' ' -f1 "$work/result" >>"$work/ours"
		"$python" "$top_srcdir/tests/gpu/nanogpt_peer.py" \
			"$(number layers "$2")" "$(number hidden "$2")" \
			"$(number heads "$2")" "$(number vocab "$2")" \
			"$(number seq_len "$2")" "$3" "$4" \
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
	awk -v a="$ours" -v b="$theirs" 'BEGIN { print a / b }' \
		>"$work/$1.ratio"
}

# target TEXT WANTED VALUE: a line of the targets; VALUE empty or 0: not
# measured
target()
{
	awk -v text="$1" -v want="$2" -v is="${3:-0}" 'BEGIN {
		printf "| %s | %s | ", text, want
		if (is > 0)
			printf "%g | %s |\n", is,
				(is + 0 >= want + 0 ? "met" : "not met")
		else
			printf "- | not measured |\n" }'
}

# best NAME FIELD: a field of the best row that keep() has kept
best()
{
	[ ! -f "$work/$1.best" ] || cut -d' ' -f"$2" "$work/$1.best"
}

small="{family: gpt2, layers: 6, hidden: 384, heads: 6, vocab: 50304, seq_len: 256}"
gpt2="{family: gpt2, layers: 12, hidden: 768, heads: 12, vocab: 50304, seq_len: 1024}"
gpt2_xl="{family: gpt2, layers: 48, hidden: 1600, heads: 25, vocab: 50304, seq_len: 1024}"
llama="{family: llama, layers: 6, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 1024, seq_len: 8192}"

cat <<END

MFU is given against the measured product above, with attention in full, and
against the data sheet of ${gpu:-this GPU} ($sheet TFLOP/s, 0: not known), with
attention in full and with the half of it that the causal mask leaves. Products
are searched for (train.search_products) and steps are graphs where nothing else
is said.

| model, bf16, one GPU | tokens/s | MFU, measured | MFU, data sheet | causal | memory, GiB |
|---|---|---|---|---|---|
END
if [ -z "$short" ]; then
row "6 layers, 384 wide, without graphs" "$small" 12 12 --set train.graph=off
row "6 layers, 384 wide" "$small" 12 12 --set train.graph=on
row "gpt2-124M, without graphs" "$gpt2" 64 32 --set train.graph=off
row "gpt2-124M, products not searched for" "$gpt2" 64 32 \
	--set train.graph=on --set train.search_products=false
fi
row "gpt2-124M" "$gpt2" 64 32 --set train.graph=on
keep gpt2-124M
row "gpt2-1.5B" "$gpt2_xl" 64 8 --set train.graph=on
keep gpt2-1.5B
row "8B-blocks" "$llama" 8 1 --set train.graph=on
keep 8B-blocks
[ -z "$cudnn" ] || PLAIT_ATTENTION=cudnn
row "8B-blocks, fp8" "$llama" 8 1 --set train.graph=on \
	--set train.precision=fp8
keep 8B-fp8
if [ -z "$short" ]; then
row "8B-blocks, 4 at a time" "$llama" 8 4 --set train.graph=on
row "8B-blocks, fp8, 4 at a time" "$llama" 8 4 --set train.graph=on \
	--set train.precision=fp8
row "8B-blocks, documents" "$llama" 8 1 --set train.graph=on \
	--set data.mask_documents=true
row "gpt2-1.5B, 32 at a time" "$gpt2_xl" 64 32 --set train.graph=on
fi
if [ "$short$cudnn" = 11 ]; then
	:
elif [ -n "$cudnn" ]; then
	PLAIT_ATTENTION=cudnn
	row "gpt2-124M, attention by cuDNN" "$gpt2" 64 32 \
		--set train.graph=on
	keep gpt2-124M
	row "gpt2-1.5B, attention by cuDNN" "$gpt2_xl" 64 8 \
		--set train.graph=on
	keep gpt2-1.5B
	row "8B-blocks, attention by cuDNN" "$llama" 8 1 --set train.graph=on
	keep 8B-blocks
else
	echo
	echo "cuDNN's attention: missing (./configure says whether it was found)"
fi

echo
if "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' \
	2>/dev/null; then
	cat <<-END
	PyTorch is nanoGPT's recipe: torch.compile, flash attention, fused AdamW.
	Each of Plait's takes the attention that was faster above.

	| model, bf16, one GPU | tokens/s | $("$python" -c \
		'import torch; print("PyTorch", torch.__version__)') | ratio |
	|---|---|---|---|
	END
	PLAIT_ATTENTION=$(best gpt2-124M 3)
	peer small "$small" 12 12
	peer gpt2-124M "$gpt2" 64 32
	PLAIT_ATTENTION=$(best gpt2-1.5B 3)
	[ -n "$short" ] || peer gpt2-1.5B "$gpt2_xl" 64 8
else
	echo "PyTorch: missing ($python has none for this GPU; TORCH_PYTHON" \
		"names another)"
fi

# llm.c's published runs: tokens/s of one of eight GPUs.
case $gpu in
*A100*) llmc=218000 llmc_xl=0 ;;
*H100* | *H200*) llmc=468000 llmc_xl=47000 ;;
*) llmc=0 llmc_xl=0 ;;
esac
cat <<END

| target | wanted | measured | |
|---|---|---|---|
END
target "gpt2-124M, T = 1024, MFU against the data sheet, %" 50 \
	"$(best gpt2-124M 2)"
target "gpt2-124M, tokens/s against PyTorch" 1.15 \
	"$(cat "$work/gpt2-124M.ratio" 2>/dev/null)"
target "gpt2-1.5B, MFU against the data sheet, %" 60 "$(best gpt2-1.5B 2)"
target "8B-blocks, MFU against the data sheet, %" 60 "$(best 8B-blocks 2)"
target "8B-blocks, fp8, tokens/s against bf16" 1.4 \
	"$(awk -v a="$(best 8B-fp8 1)" -v b="$(best 8B-blocks 1)" \
		'BEGIN { print (b > 0 ? a / b : 0) }')"
[ $llmc -eq 0 ] ||
	target "gpt2-124M, tokens/s of llm.c" $llmc "$(best gpt2-124M 1)"
[ $llmc_xl -eq 0 ] ||
	target "gpt2-1.5B, tokens/s of llm.c" $llmc_xl "$(best gpt2-1.5B 1)"
exit $failed
