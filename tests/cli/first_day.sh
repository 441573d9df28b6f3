#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A person's first day: a run says what it begins with, what it saves and what
# comes next; two runs never write to one folder; what is advised works.
set -u
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
. "$top_srcdir/tests/lib/tiny_run.sh"

# -- texts ----------------------------------------------------------------------

yes "a text of one line" | head -c 200000000 >long
"$top_builddir/plait-prep" long --out longtok >out 2>&1 </dev/null &
pid=$!
within 60 test -s longtok/train.bin.tmp
kill -TERM $pid # Ctrl-C's signal may be ignored here
wait $pid 2>/dev/null
pid=
ok "a prep that is stopped says how to go on" \
    says "^plait-prep: stopped; the same command goes on from what it has"
ok "and its tokens are not taken for whole" test ! -e longtok/train.bin
rm -r long longtok

# -- what a run says ---------------------------------------------------------

run "${small[@]}"
ok "a run" test $status = 0
ok "begins with new weights, and says so" says "new weights, of train.seed 1"
ok "says where its checkpoint is" \
    says "^checkpoint of step 4: checkpoints/step-00000004"
ok "and what comes next" bash -c 'grep -q "plait generate checkpoints" out &&
    grep -q "plait convert --from checkpoints" out &&
    grep -q "plait report metrics.jsonl" out'
ok "in three lines" test "$(sed -n '/^checkpoint of/,$p' out | wc -l)" -le 3
run "${small[@]}"
ok "started again, it has nothing left to do" \
    says "is 4; with a larger one and --resume-anyway train.steps the run goes on"
run "${small[@]}" --set train.steps=8
ok "more steps have other learning rates" \
    says "train.steps was 4 there and is 8 here; add --resume-anyway train.steps"
ok "and are refused" test $status = 1
run "${small[@]}" --set train.steps=3
ok "fewer than are made are not: nothing is left to do" \
    says "nothing is left to do: train.steps is 3"
ok "of its data nothing is said" said_not "data.train"
run "${small[@]}" --set train.steps=3 --set data.train=nowhere
ok "also without the data, which is said" test $status = 0
cp -r checkpoints kept
mkdir other
echo '{"model_type": "llama"}' >other/config.json
echo '{}' >other/tokenizer.json
run "${small[@]}" --set train.steps=3 --init other
ok "nor by --init does a run become another" says "^--init other is not used"
ok "and no file of the other model is taken" diff -r checkpoints kept
run "${small[@]}" --set train.steps=3 --set data.train=nowhere
ok "with the reason" says \
    "^data.train: nowhere: No such .*; it is not needed any more"
for shape in constant step; do
    other=(--set checkpoint.dir=c-$shape --set lr.schedule=$shape)
    [ $shape = step ] && other+=(--set "lr.decay_at=[2]")
    run "${small[@]}" "${other[@]}"
    run "${small[@]}" "${other[@]}" --set train.steps=5
    ok "lr.schedule $shape does not know its end" says "^resumed after step 4"
done
run "${small[@]}" --set train.steps=8 --resume-anyway train.steps
ok "where they are asked for it goes on" says "^resumed after step 4"
ok "and says that the learning rate jumps" \
    says "train.steps was 4 and is 8: after step 4 the learning rate is"
for set in train val; do
    run "${small[@]}" --set checkpoint.dir=c0 --set data.$set=nowhere
    ok "a wrong data.$set is named with its key" \
        says "^plait-train: data.$set: nowhere: No such file"
done
for option in --resume --init; do
    run "${small[@]}" --set checkpoint.dir=c0 $option nowhere
    ok "a wrong $option too" \
        says "^plait-train: $option: nowhere: No such file"
done
run "${small[@]}" --set checkpoint.dir=c0 --set train.init=nowhere
ok "and train.init" says "^plait-train: train.init: nowhere: No such file"
run "${small[@]}" --set checkpoint.dir=c0 --set parallel.tp=2
ok "one process of two is told how two are started" says \
    "parallel.tp 2: that is for 2 processes, and this is one; plait run --np 2 --tp=2 -- "
run "${small[@]}" --set checkpoint.dir=null
ok "a run that saves nothing says so" \
    says "checkpoint.dir is not set: nothing will be saved"
ok "also at its end" test "$(tail -n 1 out)" = \
    "nothing was saved: checkpoint.dir is not set"
ok "another layout than the file's" timeout 240 "$plait" run --np 2 --tp=2 -- \
    "$train" gpt.yaml "${small[@]}" --set checkpoint.dir=two
grep -v vocab: gpt.yaml >novocab.yaml
timeout 240 "$train" novocab.yaml "${small[@]}" --set checkpoint.dir=c3 \
    >out 2>&1
ok "model.vocab that is left out is the data's" \
    grep -q "vocab: 257" c3/latest/plait.yaml
# novocab ARGS...: run, without model.vocab
novocab() {
    timeout 240 "$train" novocab.yaml --device cpu "${small[@]}" "$@" \
        >out 2>&1 </dev/null
    status=$?
}
# larger FILE TO: the same tokens, of a vocabulary of 300
larger() {
    python3 -c "
import sys, zlib
data = bytearray(open(sys.argv[1], 'rb').read())
data[24:28] = (300).to_bytes(4, 'little')
data[60:64] = zlib.crc32(data[:60]).to_bytes(4, 'little')
open(sys.argv[2], 'wb').write(data)" "$1" "$2"
}
larger tokens/train.bin train300.bin
larger tokens/val.bin val300.bin
novocab --set checkpoint.dir=v1 --set data.val=val300.bin
ok "the larger one of train and val" grep -q "vocab: 300" v1/latest/plait.yaml
run "${small[@]}" --set checkpoint.dir=v2 --set model.vocab=600
novocab --set checkpoint.dir=v2 --set train.steps=5 --resume-anyway train.steps
ok "a run that is resumed keeps its own" says "^resumed after step 4"
novocab --set checkpoint.dir=v3 --resume v2/step-00000004
ok "also by --resume DIR" says "^resumed after step 4"
novocab --set checkpoint.dir=v4 --init v2
ok "weights that a run begins with say it" \
    grep -q "vocab: 600" v4/latest/plait.yaml
novocab --set checkpoint.dir=c3 --set train.steps=5 \
    --resume-anyway train.steps --set data.train=train300.bin
ok "data of a larger one is refused" \
    says "train300.bin has a vocabulary of 300 tokens, but model.vocab is 257"
novocab --set checkpoint.dir=c3 --set train.steps=5 \
    --resume-anyway train.steps --set data.train=gone.bin
ok "data that is missing is told, not shapes" says "gone.bin: No such file"
ok "... by a run that is resumed" said_not "shapes|50304"
novocab --set checkpoint.dir=v5 --set data.train=gone.bin
ok "... and by a new run" says "gone.bin: No such file"
novocab --set checkpoint.dir=c3 --set data.train=gone.bin --sample 5
ok "... but a sample needs none" test $status = 0
novocab --set checkpoint.dir=v6 --set data.mask_documents=true \
    --set data.end_token=151643
ok "a token that ends documents is held to it" \
    says "data.end_token 151643 must be below model.vocab 257"

run "${small[@]}" --set checkpoint.dir=c4 --set model.vocab=5000
ok "a larger one is a line" says "model.vocab is 5000, but the data has 257"

# -- the weights it begins with ----------------------------------------------

run "${small[@]}" --init checkpoints --set checkpoint.dir=c5
ok "a folder of checkpoints is taken by --init" \
    says "begins with the weights of checkpoints"
for what in checkpoints checkpoints/latest checkpoints/step-00000008; do
    run "${small[@]}" --set train.steps=9 --set checkpoint.dir=c6 \
        --resume $what --resume-anyway train.steps
    ok "--resume $what" says "^resumed after step 8"
    rm -rf c6
    ok "generate $what" timeout 240 "$top_builddir/plait-generate" $what \
        --prompt 12 --tokens 3
    ok "eval $what" timeout 240 "$top_builddir/plait-eval" $what text
    ok "convert $what" timeout 240 "$top_builddir/plait-convert" --from $what \
        --to "hf-$(basename $what)"
done
run "${small[@]}" --set train.steps=9 --resume hf-latest
ok "a model of Hugging Face's has no run to resume" \
    says "without the state of a run; use --init hf-latest"

for model in hf-latest hf-latest/config.json; do
    "$plait" plan --auto --model $model --gpus 8 --gpu-type h100 >out
    ok "a plan of $model makes a checkpoint of it first" \
        says "^plait convert --from hf-latest --to start$"
    ok "which is what is trained" says "plait-train start/plait.yaml --set"
done

# Another program's manifest.json says nothing of weights; nor does a
# configuration of another name that lies beside a checkpoint.
mkdir -p app
cp gpt.yaml app/gpt.yaml
cp gpt.yaml app/plait.yaml
echo '{"name": "an app", "icons": []}' >app/manifest.json
cp gpt.yaml checkpoints/step-00000004/gpt.yaml
for file in app/gpt.yaml app/plait.yaml checkpoints/step-00000004/gpt.yaml; do
    timeout 240 "$train" "$file" --device cpu "${small[@]}" \
        --set checkpoint.dir=c9 --resume none >out 2>&1 </dev/null
    ok "$file begins with new weights" says "begins with new weights"
done
rm checkpoints/step-00000004/gpt.yaml
timeout 240 "$train" checkpoints/latest/plait.yaml --device cpu \
    --set data.train=tokens/train.bin --set train.steps=1 \
    --set train.global_batch=4 >out 2>&1 </dev/null
ok "a checkpoint's plait.yaml begins with its weights" \
    says "begins with the weights of checkpoints/latest"

# -- keys that change shapes -------------------------------------------------

run "${small[@]}" --set train.steps=9 --set model.layers=3 --set optim.lr=1e-4
ok "another number of layers is refused" test $status = 1
ok "with advice that works" says "other shapes: model.layers was 1 there and \
is 3 here; set that back .* another checkpoint.dir and --resume none"
ok "and not --resume-anyway" said_not "resume-anyway"
run "${small[@]}" --set model.layers=3 --resume-anyway model.layers
ok "which refuses that key" says "no checkpoint goes on"
run "${small[@]}" --set model.layers=3 --set checkpoint.dir=c7 --resume none
ok "another checkpoint.dir does" test $status = 0

# -- two runs in one folder ---------------------------------------------------

long=("${small[@]}" --set train.steps=100000 --set checkpoint.every=20
    --set checkpoint.dir=busy --metrics busy.jsonl)
begin() {
    rm -rf busy busy.jsonl*
    "$@" >long.out 2>&1 </dev/null &
    pid=$!
    within 60 test -s busy.jsonl
}
begin "$train" gpt.yaml "${long[@]}"
run "${long[@]}"
ok "a second run in one folder is refused" test $status = 1
ok "and told who trains there" \
    says "busy: another run trains there: process $pid on $(hostname), since"
run "${small[@]}" --set checkpoint.dir=c8 --metrics busy.jsonl
ok "so is one that writes to the same metrics file" \
    says "busy.jsonl: another run trains there: process $pid"
ok "nothing was written between its lines" python3 -c "
import json
for line in open('busy.jsonl').read().splitlines()[:-1]: json.loads(line)"
kill -9 $pid
wait $pid 2>/dev/null
run "${long[@]}" --set train.steps=1
ok "a run that was killed is followed by the next one" test $status = 0
ok "which says so" says "process $pid on .* has ended without a word"
pid=
ok "nothing is left of the claims" bash -c "! ls busy/.running ./*.running"

# stops ARGS...: a run that SIGTERM ends; its output in $dir/out
stops() {
    begin "$train" gpt.yaml "${long[@]}" "$@"
    kill -TERM $pid
    wait $pid
    pid=
    mv long.out out
}
stops
ok "a run that is stopped says how to go on" \
    says "^stopped after step .*; the same command goes on from there"
stops --resume none
ok "and not with what would begin anew" \
    says "^stopped after step .*; --resume auto goes on from there"

# An elastic run that loses its first rank keeps what it has claimed.
begin "$plait" run --elastic --np 3 --dp=3 --pin=none -- sh -c \
    'echo $$ >"pid.$PLAIT_RANK"; exec "$@"' sh "$train" gpt.yaml "${long[@]}" \
    --set train.global_batch=12 --device cpu --comm socket
within 60 test -e busy/latest
first=$(cat pid.0)
kill -9 "$first"
within 60 grep -q "back at step" long.out
ok "an elastic run goes on without its first rank" \
    grep -q "back at step" long.out
run "${long[@]}"
ok "and still has its folder" says "busy: another run trains there"
ok "it was not refused by itself" bash -c \
    "! grep -q 'another run trains\|without a word' long.out"
kill -TERM $pid
wait $pid 2>/dev/null
pid=
run "${long[@]}" --set train.steps=1 --set train.global_batch=12
ok "after its end the folder is free" said_not "another run|without a word"
echo "1..$n"
