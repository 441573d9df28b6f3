#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A shared file system is spared: strace shows how many ranks open the
# configuration, the tokens and a checkpoint's files.
set -u
train=$top_builddir/plait-train
mpirun=$top_srcdir/tests/lib/mpirun.sh
nodes=$top_srcdir/tests/lib/nodes.sh
. "$top_srcdir/tests/lib/tier.sh"
export OMP_NUM_THREADS=1
command -v mpirun >/dev/null && command -v python3 >/dev/null &&
    "$train" --version >/dev/null ||
    { echo "1..0 # SKIP needs mpirun and python3"; exit 0; }
strace -o /dev/null true 2>/dev/null ||
    { echo "1..0 # SKIP needs strace, and leave to use it"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n=0

# is WHAT EXPECTED GOT: one check
is() {
    n=$((n + 1))
    if [ "$2" = "$3" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        echo "# expected $2, got $3"
        sed 's/^/# /' "$dir/out"
    fi
}

# run COMMAND...: run it under strace, which writes a file for each process
run() {
    rm -f "$dir"/trace.*
    timeout 240 strace -ff -qq -s 4096 -e trace=open,openat \
        -o "$dir/trace" "$@" >"$dir/out" 2>&1 </dev/null
    status=$?
}

# openers NAME: how many processes opened that file
openers() {
    grep -l "\"[^\"]*$1\"" "$dir"/trace.* 2>/dev/null | wc -l
}

# last_loss: the loss of the last step
last_loss() {
    tail -n 1 "$dir/m.jsonl" | sed 's/.*"loss":\([^,]*\).*/\1/'
}

for i in 0 1 2; do
    python3 -B "$top_srcdir/tests/lib/tokens.py" "$dir/tokens-$i.bin" 3000 $i
done
cat >"$dir/c.yaml" <<EOF
model: {layers: 2, hidden: 32, heads: 2, vocab: 257, seq_len: 32}
data: {train: "$dir/tokens-*.bin"}
train: {steps: 4, global_batch: 8, micro_batch: 2}
lr: {schedule: constant}
checkpoint: {dir: $dir/ck, every: 2}
log: {metrics: $dir/m.jsonl}
EOF

timeout 240 "$train" "$dir/c.yaml" --resume none >"$dir/out" 2>&1
alone=$(last_loss)
rm -rf "$dir/ck" "$dir/m.jsonl"

run sh "$mpirun" 4 "$train" "$dir/c.yaml" --set train.steps=2
is "four ranks train" 0 "$status"
is "one of them opens the configuration" 1 "$(openers c.yaml)"
for i in 0 1 2; do
    is "one of them opens shard $i" 1 "$(openers tokens-$i.bin)"
done
run sh "$mpirun" 4 "$train" "$dir/c.yaml" --resume auto
is "four ranks go on" 0 "$status"
is "one of them opens the manifest" 1 "$(openers manifest.json)"
for i in 0 1 2 3; do
    is "one of them opens part $i of the checkpoint, which all want" 1 \
        "$(openers "step-00000002/rank-0000$i.safetensors")"
done
is "the loss is that of one process" \
    "$(printf %.4f "$alone")" "$(printf %.4f "$(last_loss)")"

zero_parts() {
    # Each rank's part of ZeRO is in its own file of the checkpoint.
    rm -rf "$dir/ck"
    run sh "$mpirun" 4 "$train" "$dir/c.yaml" --set train.steps=2 \
        --set parallel.zero=1
    is "four ranks train with ZeRO" 0 "$status"
    run sh "$mpirun" 4 "$train" "$dir/c.yaml" --set parallel.zero=1
    is "and go on" 0 "$status"
    for i in 0 1 2 3; do
        is "one of them opens part $i of the checkpoint" 1 \
            "$(openers "step-00000002/rank-0000$i.safetensors")"
    done
    is "the loss is that of one process" \
        "$(printf %.4f "$alone")" "$(printf %.4f "$(last_loss)")"
    rm "$dir/ck"/step-*4/rank-00002.safetensors
    run sh "$mpirun" 4 "$train" "$dir/c.yaml" --set parallel.zero=1 \
        --set train.steps=5 --resume "$dir/ck/step-00000004"
    is "a part that is lost is refused" 1 $((status != 0 && status != 124))
    is "it is named once" 1 \
        "$(grep -c 'rank-00002.safetensors: No such' "$dir/out")"
}
! all_tier || zero_parts

run sh "$mpirun" 4 sh "$nodes" 2 1 1 4 1 1 "$train" "$dir/c.yaml" \
    --resume none
is "four ranks train on what looks like two nodes" 0 "$status"
is "one rank of all opens the configuration" 1 "$(openers c.yaml)"
is "once" 1 \
    "$(cat "$dir"/trace.* | grep -c "\"[^\"]*c.yaml\"")"
is "one rank of each node opens a shard" 2 "$(openers tokens-1.bin)"

for node in 0 1; do
    mkdir "$dir/node$node"
    cp "$dir"/tokens-*.bin "$dir/node$node"
done
own_disks() {
    run sh "$mpirun" 4 sh "$nodes" 2 1 1 4 1 1 sh -c \
        'cd "$0$PLAIT_NODE_RANK" && exec "$@"' "$dir/node" \
        "$train" "$dir/c.yaml" --resume none --set "data.train=tokens-*.bin"
}
own_disks
is "each node may have files of its own" 0 "$status"
rm "$dir/node1/tokens-2.bin"
own_disks
is "if they are the same" 1 $((status != 0 && status != 124))
is "or the rank with others is named" 1 \
    "$(grep -c 'data.train: tokens-\*.bin: rank 2 (.*) sees other files' "$dir/out")"

mv "$dir/tokens-1.bin" "$dir/elsewhere"
head -c 2000 "$dir/elsewhere" >"$dir/tokens-1.bin"
run sh "$mpirun" 4 "$train" "$dir/c.yaml" --resume none
is "a shard cut short is refused" 1 $((status != 0 && status != 124))
is "it is named once" 1 "$(grep -c 'tokens-1.bin: truncated' "$dir/out")"
echo "1..$n"
