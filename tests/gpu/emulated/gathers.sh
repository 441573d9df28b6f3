#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ZeRO 1 and 2 gather new weights while the next step computes: the same losses
# as with gathers that end with their step, in an order that is no accident, and
# mistakes of that order are found.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
. "$top_srcdir/tests/lib/tier.sh"
export OMP_NUM_THREADS=1 EMULATED_GPUS=4 EMULATED_DRIVER=13000
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out

"$top_builddir/plait-prep" "$top_srcdir/LICENSE" --out "$dir/data" >/dev/null ||
    exit 99
cat >"$dir/c.yaml" <<END
model: {family: llama, layers: 2, hidden: 32, heads: 2, ffn: 64, vocab: 257, seq_len: 8}
data: {train: "$dir/data/train.bin"}
train: {steps: 7, global_batch: 8, micro_batch: 1, seed: 7, precision: bf16}
parallel: {zero: 1}
optim: {lr: 1.0e-2}
lr: {warmup: 1}
END
# Links so slow that gathering a layer takes longer than queueing it.
echo 'gpu_types: {h100: {link_gbps: 0.01}}' >"$dir/site.yaml"
# start PROGRAM FOLDER SETTING..: two ranks that save their model in FOLDER
cat >"$dir/start" <<END
program=\$1 folder=\$2
shift 2
exec timeout -k 9 240 "$top_builddir/plait" run --np \${ranks-2} --pin=none \
    \$elastic \${layout---dp=2} -- \$wrapper "\$program" "$dir/c.yaml" --device cuda \
    --resume none --set checkpoint.dir="\$folder" \
    \$(printf -- '--set %s ' "\$@") </dev/null
END
# as if the four ranks were on two nodes
cat >"$dir/node" <<'END'
PLAIT_NNODES=2 PLAIT_LOCAL_WORLD_SIZE=2
PLAIT_NODE_RANK=$((PLAIT_RANK / 2)) PLAIT_LOCAL_RANK=$((PLAIT_RANK % 2))
export PLAIT_NNODES PLAIT_LOCAL_WORLD_SIZE PLAIT_NODE_RANK PLAIT_LOCAL_RANK
exec "$@"
END

# train NAME SETTING..: metrics in $dir/NAME; nothing is left over
train() {
    local name=$1
    shift
    rm -f "$dir/calls"
    EMULATED_CALLS=$dir/calls sh "$dir/start" "$emulated/plait-train" \
        "$dir/saved" log.metrics="$dir/$name" "$@" >"$dir/out" 2>&1 &&
        grep -q '^left-streams' "$dir/calls" &&
        ! grep '^left-.* [^0]' "$dir/calls"
}

# losses NAME: of each step, norms of its gradients, and what evaluations found
losses() {
    grep -o '^{"step":[0-9]*\|"loss":[^,]*\|"grad_norm":[^,]*\|"val_loss":[^,}]*' \
        "$dir/$1"
}

# ahead WHAT SETTING..: the losses without graphs, where steps end at once; with
# train.graph=on, which gathers within the step; and with auto are the same
ahead() {
    local what=$1 graph
    shift
    ok "$what: gathers in the step, all of it recorded" \
        train on train.graph=on "$@"
    for graph in auto off; do
        ok "$what: gathers in the next step, train.graph $graph" \
            train $graph train.graph=$graph "$@"
        losses on >"$dir/want"
        losses $graph >"$dir/got"
        ok "... with the same losses" \
            eval 'test -s "$dir/want" && diff "$dir/want" "$dir/got"'
    done
}

train small
ok "small layers are not worth it, and all of a step is replayed" \
    grep -q '^recorded as graphs: forward, backward and optimizer' "$dir/out"
export PLAIT_SITE="$dir/site.yaml"
ahead "zero 1"
train auto
ok "which is said" grep -q \
    '^recorded as graphs: forward and backward; weights are gathered' \
    "$dir/out"
ahead "zero 2" parallel.zero=2
ahead "zero 1, saved, compared and evaluated" checkpoint.every=2 \
    train.check_replicas=4 train.eval_every=5 \
    train.eval_steps=2 data.val="$dir/data/train.bin"
ok "... the evaluation among them" grep -q val_loss "$dir/want"
elastic=--elastic
export elastic
ahead "zero 1, copied into memory" checkpoint.memory=3
unset elastic
if all_tier; then
    ahead "zero 1, experts" model.experts=4 model.experts_top_k=2
    ahead "zero 2, fp8" parallel.zero=2 train.precision=fp8 model.hidden=64 \
        model.ffn=128
    ranks=4 layout='--dp=2 --pp=2'
    export ranks layout
    ahead "zero 1, two stages"
    # gathers are ahead without graphs; with them the head keeps its buffer
    ahead "zero 2, two stages of two chunks" parallel.zero=2 model.layers=4 \
        parallel.schedule=interleaved parallel.virtual=2
    EMULATED_DRIVER=0
    ahead "the same where backward is not recorded" parallel.zero=2 \
        model.layers=4 parallel.schedule=interleaved parallel.virtual=2
    EMULATED_DRIVER=13000
    layout='--dp=2 --tp=2'
    ahead "zero 2, tp 2" parallel.zero=2
    layout=--dp=4 wrapper="sh $dir/node"
    export wrapper
    ahead "zero 1, two nodes" parallel.all_reduce=hierarchical
    unset ranks layout wrapper
    GATHERS=$dir/start python3 "$top_srcdir/tests/gpu/emulated/mutants.py" \
        gathers "$top_srcdir" "$emulated/modules" "$emulated" >"$dir/mutants"
    shown=$dir/mutants
    ok "$(grep -c '^ok' "$dir/mutants") mistakes in the sources are found" \
        eval '! grep "^not ok" "$dir/mutants" && grep "^1\.\." "$dir/mutants"'
fi
echo "1..$n"
