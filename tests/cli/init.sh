#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plait init: for each size it writes a file that the other commands read, with
# the layout that plait plan --auto would choose; nothing is overwritten.
. "$top_srcdir/tests/lib/check.sh"
plait=$top_builddir/plait
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT

# fits FILE GPUS: whether plait estimate says that the file's layout fits
fits() {
    "$plait" estimate --model "$1" --gpus "$2" --gpu-type h100 --json \
        >"$tmp/estimate" 2>"$tmp/err" && grep -q '"fits": *true' "$tmp/estimate"
}

sizes=$("$plait" init --help | sed -n '/--model SIZE .*one of these/{n;p;}')
for size in $sizes; do
    case $size in 405b) gpus=1024 ;; 70b) gpus=256 ;; *) gpus=16 ;; esac
    "$plait" init --model "$size" --gpus $gpus --gpu-type h100 \
        --out "$tmp/$size.yaml" && fits "$tmp/$size.yaml" $gpus
    check "$size on $gpus GPUs" $?
done
[ "$(echo "$sizes" | wc -w)" -ge 12 ]
check "all sizes were tried" $?

"$plait" init --model 8B --gpus 16 --gpu-type H100 |
    grep -q 'srun -N2 --ntasks-per-node=8 --gpus-per-node=8 --tp='
check "the srun line names nodes, tasks and GPUs" $?
"$plait" init --model 8B --gpus 12 --gpu-type h100 |
    grep -q 'srun -N2 --ntasks-per-node=6 --gpus-per-node=6 --tp='
check "12 GPUs are two nodes of 6" $?
"$plait" init --model tiny --gpu-type cpu >"$tmp/cpu.yaml" &&
    grep -q 'precision: fp32' "$tmp/cpu.yaml"
check "a machine without GPUs" $?
# Without options the result depends on the machine: a file, or one clear line.
"$plait" init --model tiny >"$tmp/here" 2>"$tmp/err" &&
    grep -q '^    micro_batch: ' "$tmp/here" ||
    grep -q 'name the GPUs it is for' "$tmp/err" ||
    grep -q 'give it with --gpu-type' "$tmp/err"
check "this machine" $?

# refuse STATUS PATTERN OPTION...: whether it exits with STATUS and this one
# line
refuse() {
    wanted=$1 pattern=$2
    shift 2
    "$plait" init "$@" >"$tmp/out" 2>"$tmp/err"
    [ $? = "$wanted" ] && [ "$(wc -l <"$tmp/err")" = 1 ] &&
        grep -q "$pattern" "$tmp/err" && [ ! -s "$tmp/out" ]
    rc=$?
    check "refused: ${*:-no option}: $(cat "$tmp/err")" $rc
}
refuse 2 'model is missing'
refuse 2 'must be one of tiny 124m' --model 9b
refuse 2 'must be a number' --model 8b --gpus 0
refuse 2 'must be a number' --model 8b --gpus 4x
refuse 2 "unexpected argument 'more'; see" --model 8b more
refuse 2 "unexpected argument '8b'; did you mean --model 8b?" 8b
refuse 1 'at least --gpus=' --model 405b --gpus 8 --gpu-type h100
refuse 1 'h100' --model 8b --gpu-type h101
cp "$tmp/8b.yaml" "$tmp/copy"
refuse 1 'is there already' --model tiny --gpus 1 --gpu-type h100 \
    --out "$tmp/8b.yaml"
cmp -s "$tmp/8b.yaml" "$tmp/copy"
check "a file that is there stays as it is" $?
echo "1..$n"
