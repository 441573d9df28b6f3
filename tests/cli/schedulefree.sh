#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# optim.name schedulefree: what is evaluated and saved is the average; an
# evaluation changes nothing; a resumed run goes on by the same bits.
set -u
eval=$top_builddir/plait-eval
. "$top_srcdir/tests/lib/resumed.sh"
. "$top_srcdir/tests/lib/tier.sh"

seq -s ' ' 1 800 >"$dir/text"
seq -s ' ' 300 500 | head -c 269 >"$dir/short" # 8 samples
prep text
prep short
data=$dir/text.data/train.bin val=$dir/short.data/train.bin
cat >"$dir/c.yaml" <<END
model: {family: llama, layers: 2, hidden: 32, heads: 4, vocab: 257, seq_len: 32}
data: {train: $data, val: $val}
train: {steps: 8, global_batch: 4, micro_batch: 2, eval_every: 0, eval_steps: 2}
optim: {name: schedulefree, lr: 0.01, betas: [0.9, 0.95]}
lr: {schedule: constant, warmup: 3}
END

# steps NAME: the loss of each step
steps() {
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$dir/$1.jsonl"
}
val() {
    sed -n 's/.*"val_loss":\([^,}]*\).*/\1/p' "$dir/$1.jsonl" | tail -n 1
}
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-10) }'
}

mpi=
has_mpi && mpi=yes
ways="1:fp32:0 ${mpi:+2:fp32:3}"
all_tier && ways+=" 1:bf16:0 ${mpi:+2:fp32:1 2:bf16:3}"
for way in $ways; do
    IFS=: read -r ranks precision zero <<<"$way"
    more="--set train.precision=$precision --set parallel.zero=$zero"
    more+=" --set train.deterministic=true"
    rm -rf "$dir"/plain "$dir"/often "$dir"/*.jsonl
    run "$ranks" plain $more
    want=$(state)
    steps plain >"$dir/want"
    run "$ranks" often $more --set train.eval_every=2 --set checkpoint.every=4
    ok "$way: evaluations change nothing ($want)" \
        test "$want" -a "$(state)" = "$want"
    ok "$way: no step's loss" cmp "$dir/want" <(steps often)
    if [ "$precision" = fp32 ]; then
        got=$("$eval" "$dir/often" "$val" --json 2>"$dir/err" |
            sed 's/.*"loss":\([^,]*\).*/\1/')
        first=$(steps often | sed -n '1s/.* //p')
        ok "$way: the loss that the checkpoint has ($(val often), $got)" \
            near "$(val often)" "$got"
        ok "$way: which is better than at first" \
            awk -v a="$got" -v b="$first" 'BEGIN { exit !(a < b - 0.1) }'
    fi
    rm -rf "$dir/often/step-00000008"
    run "$ranks" often $more --set train.eval_every=2 --set checkpoint.every=4
    ok "$way: resumed after step 4" grep -q '^resumed after step 4$' "$dir/err"
    ok "$way: by the same bits" \
        test "$(state)" = "$want" -a "$(steps often | wc -l)" -ge 8
done
echo "1..$n"
