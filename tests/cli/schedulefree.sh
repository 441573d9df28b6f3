#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# optim.name schedulefree: what is evaluated and saved is the average; an
# evaluation changes nothing; a resumed run goes on by the same bits.
set -u
export OMP_NUM_THREADS=1
train=$top_builddir/plait-train eval=$top_builddir/plait-eval
mpirun=$top_srcdir/tests/lib/mpirun.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
. "$top_srcdir/tests/lib/tier.sh"
shown=$dir/err

seq -s ' ' 1 800 >"$dir/text"
seq -s ' ' 300 500 | head -c 269 >"$dir/short" # 8 samples
for name in text short; do
    "$top_builddir/plait-prep" "$dir/$name" --out "$dir/$name.data" \
        >"$dir/err" 2>&1 ||
        { sed 's/^/# /' "$dir/err"; echo "Bail out! prep"; exit 1; }
done
data=$dir/text.data/train.bin val=$dir/short.data/train.bin
cat >"$dir/c.yaml" <<END
model: {family: llama, layers: 2, hidden: 32, heads: 4, vocab: 257, seq_len: 32}
data: {train: $data, val: $val}
train: {steps: 8, global_batch: 4, micro_batch: 2, eval_every: 0, eval_steps: 2}
optim: {name: schedulefree, lr: 0.01, betas: [0.9, 0.95]}
lr: {schedule: constant, warmup: 3}
END

# run RANKS NAME ARGS...: its checkpoints in NAME, its metrics in NAME.jsonl
run() {
    local ranks=$1 name=$2 start=
    shift 2
    [ "$ranks" = 1 ] || start="sh $mpirun $ranks"
    timeout 120 $start "$train" "$dir/c.yaml" --set "checkpoint.dir=$dir/$name" \
        --metrics "$dir/$name.jsonl" "$@" >"$dir/err" 2>&1
}

# steps NAME: the loss of each step
steps() {
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$dir/$1.jsonl"
}
state() {
    sed -n 's/.*state after step/state after step/p' "$dir/err"
}
val() {
    sed -n 's/.*"val_loss":\([^,}]*\).*/\1/p' "$dir/$1.jsonl" | tail -n 1
}
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-10) }'
}

mpi=
command -v mpirun >/dev/null && run 2 try --set train.steps=1 && mpi=yes
[ "$mpi" ] || echo "# no MPI: one rank alone"
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
