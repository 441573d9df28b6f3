#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# optim.moments and optim.masters: a resumed run goes on by the same bits, also
# with several learners; a run with other ones is refused, or converts.
set -u
export OMP_NUM_THREADS=1
train=$top_builddir/plait-train
mpirun=$top_srcdir/tests/lib/mpirun.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
. "$top_srcdir/tests/lib/tier.sh"
shown=$dir/err

seq -s ' ' 1 800 >"$dir/text"
"$top_builddir/plait-prep" "$dir/text" --out "$dir/data" >"$dir/err" 2>&1 ||
    { sed 's/^/# /' "$dir/err"; echo "Bail out! prep"; exit 1; }
cat >"$dir/c.yaml" <<END
model: {family: llama, layers: 2, hidden: 32, heads: 4, vocab: 257, seq_len: 32}
data: {train: $dir/data/train.bin}
train: {steps: 8, global_batch: 4, micro_batch: 1, deterministic: true}
optim: {lr: 0.01}
lr: {schedule: constant, warmup: 3}
END

# run RANKS NAME ARGS...: its checkpoints in NAME
run() {
    local ranks=$1 name=$2 start=
    shift 2
    [ "$ranks" = 1 ] || start="sh $mpirun $ranks"
    timeout 120 $start "$train" "$dir/c.yaml" --set "checkpoint.dir=$dir/$name" \
        "$@" >"$dir/err" 2>&1
}
state() {
    sed -n 's/.*state after step/state after step/p' "$dir/err"
}

narrow="--set optim.moments=bf16"
bare="--set train.precision=bf16 --set optim.masters=bf16"
mpi=
command -v mpirun >/dev/null && run 2 try --set train.steps=1 && mpi=yes
[ "$mpi" ] || echo "# no MPI: one rank alone"
ways=("1:$narrow" "1:$bare")
[ "$mpi" ] && ways+=("2:$narrow --set parallel.zero=3"
    "2:$bare $narrow --set parallel.zero=2")
all_tier && ways+=("1:$narrow-nearest" "1:$narrow --set sync.mode=sma \
    --set sync.learners=2")
for way in "${ways[@]}"; do
    ranks=${way%%:*} more=${way#*:}
    rm -rf "$dir/plain" "$dir/often"
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
