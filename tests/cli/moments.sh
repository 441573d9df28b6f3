#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# optim.moments and optim.masters: a resumed run goes on by the same bits, also
# with several learners; a run with other ones is refused, or converts.
set -u
. "$top_srcdir/tests/lib/resumed.sh"
. "$top_srcdir/tests/lib/tier.sh"

seq -s ' ' 1 800 >"$dir/text"
prep text
cat >"$dir/c.yaml" <<END
model: {family: llama, layers: 2, hidden: 32, heads: 4, vocab: 257, seq_len: 32}
data: {train: $dir/text.data/train.bin}
train: {steps: 8, global_batch: 4, micro_batch: 1, deterministic: true}
optim: {lr: 0.01}
lr: {schedule: constant, warmup: 3}
END

narrow="--set optim.moments=bf16"
bare="--set train.precision=bf16 --set optim.masters=bf16"
mpi=
has_mpi && mpi=yes
ways=("1:$narrow" "1:$bare")
[ "$mpi" ] && ways+=("2:$narrow --set parallel.zero=3"
    "2:$bare $narrow --set parallel.zero=2")
all_tier && ways+=("1:$narrow-nearest" "1:$narrow --set sync.mode=sma \
    --set sync.learners=2")
for way in "${ways[@]}"; do
    ranks=${way%%:*} more=${way#*:}
    rm -rf "$dir"/plain "$dir"/often "$dir"/*.jsonl
    run "$ranks" plain $more
    want=$(state)
    run "$ranks" often $more --set checkpoint.every=4
    ok "$way: checkpoints change nothing ($want)" \
        test "$want" -a "$(state)" = "$want"
    rm -rf "$dir/often/step-00000008"
    run "$ranks" often $more --set checkpoint.every=4
    ok "$way: resumed after step 4" grep -q '^resumed after step 4$' "$dir/err"
    ok "$way: by the same bits" test "$want" -a "$(state)" = "$want"
done

rm -rf "$dir/often"
run 1 often --set train.steps=4 --set checkpoint.every=4
! run 1 often $narrow
ok "a checkpoint of moments in fp32 is refused" \
    grep -q 'optim.moments' "$dir/err"
run 1 often $narrow --resume-anyway optim.moments
ok "or converted" grep -q '^resumed after step 4$' "$dir/err"
echo "1..$n"
