#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# data.train as a blend: the run is the same after a resume and in any layout,
# and mistakes in it are reported in one line.
set -u
train=$top_builddir/plait-train
mpirun=$top_srcdir/tests/lib/mpirun.sh
command -v python3 >/dev/null && "$train" --version >/dev/null ||
    { echo "1..0 # SKIP needs python3"; exit 0; }
. "$top_srcdir/tests/lib/check.sh"
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
seed=$((RANDOM + 1))
echo "# seed $seed"
for i in 0 1 2; do
    python3 "$top_srcdir/tests/lib/tokens.py" "$dir/t-$i.bin" 1000 $((seed + i))
done
cat >"$dir/c.yaml" <<EOF
model: {layers: 2, hidden: 32, heads: 2, vocab: 257, seq_len: 32}
data: {train: {"$dir/t-0.bin": 0.7, "$dir/t-[12].bin": 0.3}}
train: {steps: 8, global_batch: 8, micro_batch: 2, seed: $seed}
lr: {schedule: constant}
checkpoint: {dir: $dir/ck}
EOF

# run NAME ARGS...: train; the losses of all steps are in $dir/NAME
run() {
    local name=$1
    shift
    timeout 240 ${ranks:+sh "$mpirun" $ranks} "$train" "$dir/c.yaml" \
        --metrics "$dir/m-$name" "$@" >"$dir/out" 2>&1 </dev/null
    status=$?
    sed 's/.*"loss":\([^,]*\),.*/\1/' "$dir/m-$name" >"$dir/$name" 2>/dev/null
    [ $status = 0 ] || sed 's/^/# /' "$dir/out"
}
ranks=

run whole --set checkpoint.dir=
[ $status = 0 ] && [ "$(wc -l <"$dir/whole")" = 8 ]
check "8 steps of a blend" $?
run halves --set train.steps=3
run halves
cmp "$dir/whole" "$dir/halves"
check "3 of them, and the others after a resume, are the same" $?
run alone --set checkpoint.dir= --set "data.train=$dir/t-0.bin"
[ $status = 0 ] && ! cmp -s "$dir/whole" "$dir/alone"
check "and not those of one set" $?
run one --set checkpoint.dir= --set "data.train={$dir/t-0.bin: 5}"
cmp "$dir/one" "$dir/alone"
check "a blend of one set is that set" $?

if command -v mpirun >/dev/null; then
    ranks=2
    run two --set checkpoint.dir= --set parallel.dp=2
    ranks=
    paste "$dir/whole" "$dir/two" |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d < 2e-5)) exit 1; n++ }
             END { exit n != 8 }'
    check "two ranks read the same" $?
else
    n=$((n + 1))
    echo "ok $n # SKIP needs mpirun"
fi

# refuse WHAT SAYS SETTING: the setting is refused with one line
refuse() {
    timeout 240 "$train" "$dir/c.yaml" --resume none --set "$3" \
        >"$dir/out" 2>&1 </dev/null
    [ $? != 0 ] && [ "$(grep -c "^plait-train: .*$2" "$dir/out")" = 1 ] &&
        [ "$(grep -c '^plait-train: ' "$dir/out")" = 1 ]
    check "$1" $? || sed 's/^/# /' "$dir/out"
}

refuse "a set that is missing" 'none.bin: No such file' \
    "data.train={$dir/t-0.bin: 1, $dir/none.bin: 1}"
refuse "a weight of 0" "weight of '[^']*t-1.bin' must be a number from" \
    "data.train={$dir/t-0.bin: 1, $dir/t-1.bin: 0}"
refuse "a negative weight" "weight of '[^']*t-1.bin' must be a number from" \
    "data.train={$dir/t-0.bin: 1, $dir/t-1.bin: -1}"
refuse "a set for validation that is missing" 'none.bin: No such file' \
    "data.val={news: $dir/none.bin}"
refuse "documents that nobody knows the end of" \
    'data.mask_documents: .*set data.end_token to' data.mask_documents=true
for i in $(seq 20); do
    echo "once upon a time there was a text, and it was long enough"
done >"$dir/a.txt"
"$top_builddir/plait-prep" "$dir/a.txt" --out "$dir/prep" >"$dir/out" 2>&1
run folder --set checkpoint.dir= \
    --set "data.train={$dir/prep: 1, $dir/t-0.bin: 3}"
check "plait-prep's folder is part of a blend" $status
run documents --set checkpoint.dir= --set "data.train=$dir/prep" \
    --set data.mask_documents=true
[ $status = 0 ] && grep -q '^attention and positions within doc' "$dir/out"
check "and its tokens say where documents end" $?
echo "1..$n"
