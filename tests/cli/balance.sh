#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Routers by sigmoids: a step moves each bias by the rate, in every layout and
# after a checkpoint alike, in fp32 whatever the precision is; and the biases
# are used where text is evaluated, and converted. And experts that are balanced
# over the batch: by the step before, which a checkpoint holds.
set -u
. "$top_srcdir/tests/lib/train.sh"
. "$top_srcdir/tests/lib/tier.sh"
python3 -B "$top_srcdir/tests/lib/small_model.py" "$dir" moe || exit 99
keys="--set model.experts_scores=sigmoid --set model.shared_experts=1
    --set model.dense_layers=1 --set train.steps=5 --set checkpoint.keep=9
    --set lr.schedule=constant"

# learn NAME RANKS ARGS...: train to $dir/NAME and convert that to $dir/NAME.hf
learn() {
    local name=$1 ranks=$2
    shift 2
    run "$ranks" $keys --set checkpoint.dir="$dir/$name" "$@"
    rm -rf "$dir/$name.hf"
    [ $status = 0 ] && "$top_builddir/plait-convert" --from "$dir/$name" \
        --to "$dir/$name.hf" $dtype >"$dir/converted" 2>&1
}
dtype=

# biases NAME PYTHON: whether this is true of its biases, one list a layer
biases() {
    python3 -B - "$top_srcdir/tests/lib" "$dir/$1.hf" "$2" <<'END'
import struct, sys
sys.path.insert(0, sys.argv[1])
import hf
found = hf.read(sys.argv[2])
x = []
for i in range(1, 4):
    shape, dtype, data = found[
        f"model.layers.{i}.mlp.gate.e_score_correction_bias"]
    assert (shape, dtype) == ([4], "F32")
    x.append(list(struct.unpack("<4f", data)))
print("#", x)
sys.exit(not eval(sys.argv[3]))
END
}
# same A B: both models have the same biases, to the bit
same() {
    python3 -B - "$top_srcdir/tests/lib" "$dir/$1.hf" "$dir/$2.hf" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
import hf
a, b = ({k: v for k, v in hf.read(d).items() if k.endswith("_bias")}
        for d in sys.argv[2:])
sys.exit(len(a) != 3 or a != b)
END
}
# evaluated NAME ARGS...: the loss of a model
evaluated() {
    "$top_builddir/plait-eval" "$dir/$1" "$dir/tokens.bin" --json "${@:2}" \
        2>"$dir/err" | grep -o '"loss": *[0-9.]*'
}
learn whole 1 --set model.experts_balance_rate=0.0078125
ok "5 steps move biases by the rate or not at all" biases whole \
    '(any(b for l in x for b in l) and
     all(128 * b == int(128 * b) and abs(b) <= 5 / 128 for l in x for b in l))'
loss=$(evaluated whole)
ok "... evaluated, whatever the rate is" test -n "$loss" -a "$loss" = \
    "$(evaluated whole --set model.experts_balance_rate=0.5)"
run 1 $keys --set train.steps=1 --init "$dir/whole.hf" \
    --set model.experts_groups=1 --set model.experts_top_groups=1 \
    --set checkpoint.dir="$dir/first"
ok "one group of experts is none, as that model has it" test $status = 0

# over NAME RANKS ARGS...: train 5 steps with a balance loss that shows
over() {
    local name=$1 ranks=$2
    shift 2
    run "$ranks" --set train.steps=5 --set lr.schedule=constant \
        --set model.experts_balance=1 --set checkpoint.dir="$dir/$name" \
        --set log.metrics="$dir/$name.jsonl" "$@"
}
# losses NAME FIRST LAST: of these steps
losses() {
    grep -o '"step":[0-9]*,"loss":[0-9.]*' "$dir/$1.jsonl" | sed -n "$2,$3p"
}
batch="--set model.experts_balance_over=batch --set checkpoint.every=3"
over none 1 --set model.experts_balance=0
over batch 1 $batch
ok "over the batch, the first step has no balance loss" test \
    "$(losses none 1 2 | wc -l)" = 2 -a \
    "$(losses none 1 2)" = "$(losses batch 1 2)"
ok "... and the next ones have" test \
    "$(losses none 3 3)" != "$(losses batch 3 3)"
last=$(losses batch 4 5)
rm -rf "$dir/batch/step-00000005" "$dir/batch.jsonl"
over batch 1 $batch
ok "... of the step before a checkpoint, too" grep -q \
    "resumed after step 3" "$dir/out"
ok "... to the bit" test "$(losses batch 1 2)" = "$last" -a -n "$last"
over batch 1 $batch --set model.experts_balance_over=sequence
ok "... nor does it go on otherwise, unasked" grep -q "belongs to a run with \
other settings: model.experts_balance_over was batch there and is sequence \
here; add --resume-anyway model.experts_balance_over" "$dir/out"
# goes_on FROM OVER: a copy of that run makes its last steps with this balance
anyway="--resume-anyway model.experts_balance_over"
goes_on() {
    rm -rf "$dir/on" "$dir/on.jsonl" && cp -r "$dir/$1" "$dir/on" &&
        rm -rf "$dir/on/step-00000005" &&
        over on 1 $anyway --set model.experts_balance_over="$2" \
            --set checkpoint.every=3 && [ $status = 0 ] &&
        grep -q "resumed after step 3" "$dir/out"
}
over sequence 1 --set checkpoint.every=3
ok "... but asked to, without the loads" goes_on batch sequence
ok "... and with loads that there were none of, which are 0 at first" \
    goes_on sequence batch
ok "... so that the loss of the weights comes a step later" test \
    "$(losses on 1 1)" = "$(losses sequence 4 4)" -a \
    "$(losses on 2 2)" != "$(losses sequence 5 5)"
loss=$(evaluated batch)
ok "... evaluated as a model that has no such loads" test -n "$loss" -a \
    "$loss" = "$(evaluated batch --set model.experts_balance_over=sequence)"
run 1 --set train.steps=1 --init "$dir/batch" --set checkpoint.dir="$dir/more"
ok "... which may be trained on" test $status = 0
ok "... and is converted" eval '"$top_builddir/plait-convert" \
    --from "$dir/batch" --to "$dir/batch.hf" >"$dir/out" 2>&1'
run 1 $batch --set train.steps=1 --init "$dir/batch.hf" \
    --set checkpoint.dir="$dir/back"
ok "... both ways" test $status = 0

# has_loads NAME: whether the checkpoint has a tensor of loads
has_loads() { grep -aq "router[.]load" "$dir/$1"/latest/*; }
over idle 1 $batch --set model.experts_balance=0
ok "loads are counted and kept" has_loads batch
ok "... but not where the balance loss has no weight" eval \
    '[ $status = 0 ] && ! has_loads idle'

# Where the batch is one sequence, and each step has it, both losses are alike
# from the second step on, and so are their gradients.
python3 -B "$top_srcdir/tests/lib/tokens.py" "$dir/one.bin" 25 || exit 99
# norms NAME ARGS...: of the gradients of steps 2 and 3 on that sequence
norms() {
    over "$1" 1 --set train.steps=3 --set data.train="$dir/one.bin" \
        --set train.global_batch=1 --set train.micro_batch=1 \
        --set optim.lr=1e-30 --set optim.clip=0 \
        --set model.experts_balance=10 "${@:2}"
    sed -n '2,3s/.*"grad_norm":\([0-9.]*\).*/\1/p' "$dir/$1.jsonl"
}
ok "over a batch of one sequence the loss weighs as much as over it" \
    python3 -c 'import sys
x = [float(t) for t in sys.argv[1:]]
print("#", x)
sys.exit(len(x) != 4 or max(x) > min(x) * (1 + 1e-5))' \
    $(norms one-sequence) $(norms one-batch $batch)

all_tier || { echo "1..$n"; exit 0; }
learn parts 1 --set model.experts_balance_rate=0.0078125 \
    --set checkpoint.every=2
rm -rf "$dir/parts/step-00000005"
learn parts 4 --set model.experts_balance_rate=0.0078125 --set parallel.tp=2 \
    --set parallel.dp=2 --set parallel.zero=3
ok "4 steps, and one with tp 2, dp 2 and ZeRO 3" grep -q "resumed after step 4" \
    "$dir/out"
ok "... move them the same way" same whole parts
learn ep 4 --set model.experts_balance_rate=0.0078125 --set parallel.dp=2 \
    --set parallel.ep=2 --set parallel.pp=2 --set parallel.zero=1
ok "... as in pp 2 with experts on two ranks, and ZeRO 1" same whole ep
learn still 1
ok "without a rate they stay 0" biases still \
    'not any(b for l in x for b in l)'
learn skipped 1 --set model.experts_balance_rate=0.0078125 \
    --set train.precision=fp16 --set train.loss_scale=1e12 \
    --set log.metrics="$dir/skipped.jsonl"
skipped=$(grep -c '"skipped":true' "$dir/skipped.jsonl")
ok "steps that are skipped, $skipped of 5, move none" biases skipped \
    "($skipped > 2 and
     all(128 * abs(b) <= 5 - $skipped for l in x for b in l))"

dtype="--dtype bf16"
learn half 2 --set model.experts_balance_rate=0.001 \
    --set train.precision=bf16 --set parallel.dp=2 --set parallel.zero=2
ok "in bf16 they are fp32, multiples of 0.001" biases half \
    '(any(b for l in x for b in l) and
     all(abs(1000 * b - round(1000 * b)) < 1e-5 for l in x for b in l))'

cp -r "$dir/whole.hf" "$dir/other.hf"
python3 - "$dir/other.hf/model.safetensors" <<'END'
import json, struct, sys
with open(sys.argv[1], "r+b") as f:
    size, = struct.unpack("<Q", f.read(8))
    for name, t in json.loads(f.read(size)).items():
        if name.endswith("e_score_correction_bias"):
            f.seek(8 + size + t["data_offsets"][0])
            f.write(bytes(16))
END
for precision in fp32 bf16; do
    set -- --set train.precision=$precision
    loss=$(evaluated whole "$@")
    ok "$precision: the loss of the checkpoint, $loss, is that of the model" \
        test -n "$loss" -a "$loss" = "$(evaluated whole.hf "$@")"
    ok "... with its biases, and another without" \
        test "$loss" != "$(evaluated other.hf "$@")"
done
echo "1..$n"
