#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bad input to plait-train and plait-prep: one clear line on stderr, the
# documented exit code, nothing left behind, no core dump, no hang.
set -u
train=$top_builddir/plait-train
prep=$top_builddir/plait-prep
[ -x "$train" ] || { echo "1..0 # SKIP plait-train is not built"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
count=0

# refused CODE REGEX COMMAND...: whether it exits with CODE and one line that
# matches
refused() {
    local code=$1 regex=$2 got lines
    shift 2
    count=$((count + 1))
    timeout 240 "$@" >"$dir/out" 2>"$dir/err" </dev/null
    got=$?
    lines=$(wc -l <"$dir/err")
    if [ $got = "$code" ] && [ "$lines" = 1 ] &&
        grep -Eq "^plait(-[a-z]+)?: " "$dir/err" &&
        grep -Eq "$regex" "$dir/err"; then
        echo "ok $count - $(sed "s:$dir/::g" "$dir/err")"
    else
        echo "not ok $count - $(basename "$1") ${*:2}"
        echo "# exit $got (wanted $code), $lines lines, wanted /$regex/"
        sed 's/^/# /' "$dir/err"
    fi
}

# with NAME SED...: write the good configuration, edited, and print its name
with() {
    sed "${@:2}" "$dir/good.yaml" >"$dir/$1"
    echo "$dir/$1"
}

seq 1 4000 >"$dir/text"
"$prep" "$dir/text" --out "$dir/data" >/dev/null || echo "Bail out! prep"
cat >"$dir/good.yaml" <<EOF
model: {family: gpt2, layers: 2, hidden: 32, heads: 4, vocab: 257, seq_len: 16}
data: {train: $dir/data/train.bin}
train:
  steps: 2
  global_batch: 4
  micro_batch: 2
parallel: {tp: 1}
EOF
count=$((count + 1))
if OMP_NUM_THREADS=1 timeout 240 "$train" "$dir/good.yaml" >"$dir/out" 2>&1; then
    echo "ok $count - the good configuration trains"
else
    echo "not ok $count - the good configuration trains"
    sed 's/^/# /' "$dir/out"
fi

refused 2 'CONFIG.yaml is missing; usage' "$train"
refused 2 "unexpected argument 'train.steps=9'; did you mean --set train.steps=9\?" \
    "$train" "$dir/good.yaml" train.steps=9
refused 2 'no-such-option' "$train" "$dir/good.yaml" --no-such-option
refused 2 "'-np'; plait run --np=N -- COMMAND starts N tasks" \
    "$train" -np 2 "$dir/good.yaml"
refused 2 "'--tp=2'; srun --tp=N, plait run --np=N --tp=N or --set parallel.tp=N says it" \
    "$train" "$dir/good.yaml" --tp=2
refused 2 "'--learning_rate=1'; did you mean --set optim.lr=VALUE\?" \
    "$train" "$dir/good.yaml" --learning_rate=1
refused 2 "'--reesume'; did you mean --resume\?" \
    "$train" "$dir/good.yaml" --reesume none
refused 1 'tf32 is for GPUs.*fp32 or bf16' \
    "$train" "$dir/good.yaml" --device cpu --set train.precision=tf32
refused 1 'train.graph on: the device has no graphs' \
    "$train" "$dir/good.yaml" --device cpu --set train.graph=on
refused 1 'train.graph on: the device has no graphs' \
    "$train" "$dir/good.yaml" --device cpu --set train.graph=on --sample 4
refused 1 'offload of the optimizer is for GPUs' \
    "$train" "$dir/good.yaml" --device cpu --set parallel.offload=both
refused 1 'offload of activations: .*schedule must be .*1f1b or interleaved, not zb-h1' \
    "$train" "$dir/good.yaml" --set parallel.schedule=zb-h1 \
    --set parallel.offload=activations
refused 1 'steps must be a whole number from 1' \
    "$train" "$dir/good.yaml" --set sync.mode=local --set sync.steps=0
refused 1 'sync.from 2 must be from 1 to below train.steps 2' \
    "$train" "$dir/good.yaml" --set sync.mode=post-local --set sync.from=2
refused 1 'sync.mode local: parallel.zero must be 0' \
    "$train" "$dir/good.yaml" --set sync.mode=local --set parallel.zero=1
refused 1 'global_batch 4 .* sync.learners 4' \
    "$train" "$dir/good.yaml" --set sync.mode=sma --set sync.learners=4
refused 1 'proc/none: cannot make the directory' \
    "$train" "$dir/good.yaml" --set checkpoint.dir=/proc/none
refused 1 'text: .*Not a directory' \
    "$train" "$dir/good.yaml" --set checkpoint.dir="$dir/text"
refused 1 'missing\.yaml.*No such file' "$train" "$dir/missing.yaml"
refused 1 '[Ii]s a directory' "$train" "$dir"
refused 1 "key.yaml:1:.*'layerz'.*'layers'" \
    "$train" "$(with key.yaml 's/layers/layerz/')"
refused 1 "section.yaml:3:.*'trian'.*'train'" \
    "$train" "$(with section.yaml 's/^train:/trian:/')"
refused 1 'type.yaml:4:.*steps.*many' \
    "$train" "$(with type.yaml 's/steps: 2/steps: many/')"
refused 1 'range.yaml:4:.*steps.*-2' \
    "$train" "$(with range.yaml 's/steps: 2/steps: -2/')"
refused 1 'broken.yaml:' "$train" "$(with broken.yaml '1s/}$//')"
refused 1 'twice.yaml:.*steps' \
    "$train" "$(with twice.yaml 's/^  steps: 2/  steps: 2\n  steps: 3/')"
refused 1 'heads.*5' "$train" "$(with heads.yaml 's/heads: 4/heads: 5/')"
refused 1 'global_batch.*5.*micro_batch.*2|micro_batch.*2.*global_batch.*5' \
    "$train" "$(with batch.yaml 's/global_batch: 4/global_batch: 5/')"
refused 1 'tp.*2' "$train" "$(with world.yaml 's/tp: 1/tp: 2/')"
refused 1 'steps' "$train" "$dir/good.yaml" --set train.steps=x
refused 1 "'stepz'.*'steps'" "$train" "$dir/good.yaml" --set train.stepz=3
refused 1 'no-such-data' \
    "$train" "$(with nodata.yaml 's:train.bin:no-such-data:')"
refused 1 'vocab' "$train" "$(with vocab.yaml 's/vocab: 257/vocab: 100/')"
refused 1 'no-such-dir|No such file' \
    "$train" "$dir/good.yaml" --resume "$dir/no-such-dir"
OMP_NUM_THREADS=1 timeout 240 "$train" "$dir/good.yaml" \
    --set checkpoint.dir="$dir/adamw" >"$dir/out" 2>&1 ||
    sed 's/^/# /' "$dir/out"
refused 1 'has the state of optim.name adamw; this run.s is soap; set that back, or begin a new run with its weights by --init' \
    "$train" "$dir/good.yaml" --resume "$dir/adamw/step-00000002" \
    --set optim.name=soap --set checkpoint.dir="$dir/soap"

shard=$dir/data/train.bin
cp "$shard" "$dir/whole"
head -c 10 "$dir/whole" >"$shard"
refused 1 'train.bin.*(short|truncated|header)' "$train" "$dir/good.yaml"
head -c -7 "$dir/whole" >"$shard"
refused 1 'train.bin.*(short|truncated|bytes)' "$train" "$dir/good.yaml"
{ printf garbage!; tail -c +9 "$dir/whole"; } >"$shard"
refused 1 'train.bin.*(magic|format|not a token file)' "$train" "$dir/good.yaml"
: >"$shard"
refused 1 'train.bin' "$train" "$dir/good.yaml"
head -c 100000 /dev/zero >"$shard"
refused 1 'train.bin' "$train" "$dir/good.yaml"
cp "$dir/whole" "$shard"

# mpirun adds lines of its own to a failed run; plait-train's is a single one,
# of rank 0
count=$((count + 1))
if ! grep -q "define HAVE_MPI" "$top_builddir/config.h"; then
    echo "ok $count # SKIP no MPI"
else
    timeout 240 mpirun --allow-run-as-root --oversubscribe -np 3 "$train" \
        "$dir/good.yaml" --set parallel.tp=3 >"$dir/out" 2>"$dir/err"
    got=$?
    line=$(grep '^plait-train:' "$dir/err")
    case $got:$line in
    1:*$'\n'*) echo "not ok $count - one line, not: $line" ;;
    1:*heads*4*tp*3* | 1:*tp*3*heads*4*) echo "ok $count - $line" ;;
    *) echo "not ok $count - exit $got: $line" ;;
    esac
fi

# Images: two of 2 x 2 pixels with the labels 0 and 3.
images=$dir/two-images-idx3-ubyte
printf '\0\0\10\3\0\0\0\2\0\0\0\2\0\0\0\2abcdefgh' >"$images"
printf '\0\0\10\1\0\0\0\2\0\3' >"$dir/two-labels-idx1-ubyte"
cat >"$dir/image.yaml" <<EOF
model: {family: mlp, width: 4, classes: 4, input: [1, 2, 2]}
data: {train: $images}
train: {steps: 2, global_batch: 2, micro_batch: 2}
EOF
count=$((count + 1))
if OMP_NUM_THREADS=1 timeout 240 "$train" "$dir/image.yaml" >"$dir/out" 2>&1
then
    echo "ok $count - the good images train"
else
    echo "not ok $count - the good images train"
    sed 's/^/# /' "$dir/out"
fi
refused 1 'has images of \[1, 2, 2\], but model.input is \[3, 2, 2\]' \
    "$train" "$dir/image.yaml" --set 'model.input=[3, 2, 2]'
refused 1 'image 1 has label 3, but model.classes is 3' \
    "$train" "$dir/image.yaml" --set model.classes=3
refused 1 'has tokens, but the model takes images' \
    "$train" "$dir/image.yaml" --set "data.train=$dir/data/train.bin"
refused 1 'has images, but this is a language model' \
    "$train" "$dir/good.yaml" --set "data.train=$images"
refused 1 'ghost_batch 3' "$train" "$dir/image.yaml" \
    --set model.family=resnet --set model.norm=ghost --set model.ghost_batch=3
refused 1 'trust is not a key of optim.name sgd, which takes momentum' \
    "$train" "$dir/image.yaml" --set optim.name=sgd --set optim.trust=0.1
refused 1 'batch of 1 after step 1 is below dp 1 \* train.micro_batch 2' \
    "$train" "$dir/image.yaml" --set 'batch.growth=[[1, 1]]'
refused 2 'tp 2: an image model is split over dp and pp alone' \
    "$top_builddir/plait" estimate --model "$dir/image.yaml" --tp=2 \
    --gpu-type h100
refused 2 'an image model has no timeline' \
    "$top_builddir/plait" simulate --model "$dir/image.yaml" --dp=1 \
    --gpu-type h100
printf '\0\0\10\3\0\0\0\3\0\0\0\2\0\0\0\2abcdefgh' >"$images"
refused 1 'truncated: the header says 3 images.*28 bytes in all.*has 24' \
    "$train" "$dir/image.yaml"
printf '\0\0\10\3\0\0\0\1\0\0\0\2\0\0\0\2abcd' >"$images"
refused 1 '2 labels in 1 dimensions for the 1 images' "$train" "$dir/image.yaml"
rm "$dir/two-labels-idx1-ubyte"
refused 1 'two-labels-idx1-ubyte: No such file' "$train" "$dir/image.yaml"

refused 2 'usage|text' "$prep" --out "$dir/x"
refused 1 'no-such-text' "$prep" "$dir/no-such-text" --out "$dir/x"
refused 2 'tokenizer.*wrong|wrong.*tokenizer' \
    "$prep" "$dir/text" --out "$dir/x" --tokenizer wrong

count=$((count + 1))
if [ ! -e "$dir/x" ] && ! ls "$dir"/core* core* >/dev/null 2>&1; then
    echo "ok $count - nothing left behind"
else
    echo "not ok $count - nothing left behind"
fi
echo "1..$count"
