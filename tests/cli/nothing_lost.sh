#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-train with errors that no other program reports: a checkpoint of another
# run, one with useless contents, data that are cut, a directory that disappears
# for a while.
set -u
train=$top_builddir/plait-train
hurt="python3 -B $top_srcdir/tests/cli/nothing_lost.py"
. "$top_srcdir/tests/lib/until.sh"
export OMP_NUM_THREADS=1
"$train" --version >/dev/null 2>&1 ||
    { echo "1..0 # SKIP plait-train does not start"; exit 0; }
dir=$(mktemp -d) || exit 1
pid=
trap '[ -n "$pid" ] && kill -9 $pid 2>/dev/null; rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out

# run ARGS...: output in $dir/out, exit status in $status
run() {
    timeout 240 "$train" "$dir/c.yaml" "$@" >"$dir/out" 2>&1 </dev/null
    status=$?
}

# says PATTERN: whether plait-train printed one line, and it matches
says() {
    [ "$(grep -c '^plait-train: ' "$dir/out")" = 1 ] &&
        grep -q "^plait-train: .*$1" "$dir/out"
}

python3 -B "$top_srcdir/tests/lib/small_model.py" "$dir" llama ||
    { echo "1..0 # SKIP needs python3"; exit 0; }
ck=$dir/ck
save=(--set checkpoint.dir="$ck" --set checkpoint.every=2
    --set checkpoint.keep=0 --set lr.schedule=constant)

# -- a checkpoint knows its run ------------------------------------------------
run "${save[@]}" --set train.steps=4
ok "four steps are saved" test $status = 0 -a -e "$ck/step-00000004"
more=("${save[@]}" --set train.steps=5)
mv "$dir/tokens.bin" "$dir/first.bin"
cp "$dir/first.bin" "$dir/tokens.bin"
printf 'ab' | dd of="$dir/tokens.bin" bs=1 seek=1100 conv=notrunc 2>/dev/null
# settings that keep all shapes the same
for other in model.rope_theta=20000 model.norm_eps=1e-6 train.seed=8 \
    optim.weight_decay=0.2 train.global_batch=32; do
    cp "$dir/first.bin" "$dir/tokens.bin"
    run "${more[@]}" --set $other
    ok "refused: $other" says "other settings: ${other%=*} was .* there"
    ok "in order" test $status = 1
done
run "${more[@]}" --set model.norm_eps=1e-6 --set train.seed=8
ok "all keys that differ are named" \
    says "resume-anyway model.norm_eps,train.seed to resume"
run "${more[@]}" --set model.norm_eps=1e-6 --set train.seed=8 \
    --resume-anyway train.seed,model.norm_eps
ok "and let pass where they are named" test $status = 0
rm -r "$ck/step-00000005" && ln -sfn step-00000004 "$ck/latest"
run "${more[@]}" --resume-anyway train.sed
ok "a key that is none is wrong usage" test $status = 2
run "${more[@]}" --set train.micro_batch=2 --set log.every=3 \
    --set parallel.recompute=full --set train.timeout=100
ok "steps, micro-batch, layout and log are free" test $status = 0
rm -r "$ck/step-00000005" && ln -sfn step-00000004 "$ck/latest"
printf 'ab' | dd of="$dir/tokens.bin" bs=1 seek=1100 conv=notrunc 2>/dev/null
run "${more[@]}"
ok "other data are refused" says "on other data: .*resume-anyway data.train"
run "${more[@]}" --resume-anyway data.train
ok "and let pass" test $status = 0
cp "$dir/first.bin" "$dir/tokens.bin"
rm -r "$ck/step-00000005" && ln -sfn step-00000004 "$ck/latest"

sed -i 's/"step": 4/"step": 3/' "$ck/step-00000004/manifest.json"
run "${more[@]}" --resume "$ck/step-00000004"
ok "a manifest whose step was edited is refused" says "edited or corrupt"
run "${more[@]}"
ok "auto takes the one before" grep -q "resumed after step 2" "$dir/out"
rm -r "$ck"/step-0000000[45] && ln -sfn step-00000002 "$ck/latest"
$hurt age "$ck/step-00000002"
run "${more[@]}"
ok "one of an earlier version is gone on from" test $status = 0
ok "with one line" says "earlier version.*not compared"

# -- a checkpoint with useless contents ----------------------------------------
rm -rf "$ck"
run "${save[@]}" --set train.steps=6 --metrics "$dir/whole"
cp -r "$ck" "$dir/good"
$hurt poison "$ck/step-00000006" optim.v -5
run "${save[@]}" --set train.steps=8 --metrics "$dir/m"
ok "a second moment below 0: the run goes on" test $status = 0
ok "from the one before, and says why" \
    says "step 6 skipped: its first step is not finite: .* has -\?nan at"
ok "which it did" grep -q '^{"step":5,' "$dir/m"
ok "and step 6 is in its place again, and finite" \
    cmp "$dir/good/step-00000006/rank-00000.safetensors" \
    "$ck/step-00000006/rank-00000.safetensors"
rm -rf "$ck"
cp -r "$dir/good" "$ck"
$hurt poison "$ck/step-00000006" layers. nan
$hurt poison "$ck/step-00000004" optim.v -5
run "${save[@]}" --set train.steps=7
ok "weights that are no numbers are passed over, and the next" \
    test $status = 0 -a "$(grep -c 'skipped: .*nan at' "$dir/out")" = 2
rm -rf "$ck"
cp -r "$dir/good" "$ck"
for step in 2 4 6; do
    $hurt poison "$ck/step-0000000$step" optim.v -5
done
run "${save[@]}" --set train.steps=9
ok "no checkpoint is of use: the run ends" test $status = 1
ok "and says which" test "$(grep -c 'skipped: its first' "$dir/out")" = 3
ok "and what to do" grep -q "no usable checkpoint is left before step 2" \
    "$dir/out"
rm -rf "$ck"
run "${save[@]}" --set train.steps=9 --set optim.lr=1e30 --set lr.warmup=0 \
    --set checkpoint.every=1
ok "what is not finite is not saved" test $status = 1
for step in "$ck"/step-*; do
    [ -e "$step" ] || continue
    ok "what is there is of use: ${step##*/}" python3 -B -c '
import math, struct, sys, json
data = open(sys.argv[1] + "/rank-00000.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
all(math.isfinite(x) for x in struct.unpack(
    f"<{(len(data) - 8 - size) // 4}f", data[8 + size:])) or sys.exit(1)
' "$step"
done

# -- what happens while it runs -----------------------------------------------
start() {
    : >"$dir/out"
    "$train" "$dir/c.yaml" --set train.steps=1000000 "$@" >"$dir/out" 2>&1 \
        </dev/null &
    pid=$!
    until_true grep -q "step 1/\|resumed" "$dir/out"
}

# Replaces the directory by a file, while the run is stopped: otherwise it could
# create the directory again in between.
block_directory() {
    kill -STOP "$pid"
    until_true grep -q '^State:.*stopped' "/proc/$pid/status"
    mv "$ck" "$dir/away" && : >"$ck"
    kill -CONT "$pid"
}

rm -rf "$ck"
start --set checkpoint.dir="$ck"
truncate -s 1500 "$dir/tokens.bin"
ok "a data file that is cut ends the run" ended
ok "in order" test "$status" = 1
ok "naming file and offset" says "tokens.bin: truncated while it was read: it ends"
ok "with a checkpoint" test -e "$(echo "$ck"/step-*/manifest.json)"
cp "$dir/first.bin" "$dir/tokens.bin"
start --set checkpoint.dir="$ck"
ok "from which it goes on" grep -q "resumed after" "$dir/out"
kill -TERM "$pid"
ended

rm -rf "$ck"
cp "$dir/first.bin" "$dir/val.bin"
start --set checkpoint.dir="$ck" --set data.val="$dir/val.bin" \
    --set train.eval_every=5 --set train.eval_steps=1
truncate -s 1030 "$dir/val.bin"
ok "likewise what it is evaluated with" ended
ok "with one line" says "val.bin: truncated while it was read"
ok "and a checkpoint" test -e "$(echo "$ck"/step-*/manifest.json)"

# For a while the directory is a file.
rm -rf "$ck"
start --set checkpoint.dir="$ck" --set checkpoint.every=3
until_true test -e "$ck/latest"
block_directory
ok "a save that fails is said" until_true grep -q "could not be saved: $ck" \
    "$dir/out"
ok "and training goes on" kill -0 "$pid"
rm "$ck"
ok "the next ones are saved" until_true test -e "$ck/latest"
# The removal is reported after the next step, when the checkpoint is already
# there again.
ok "and what was removed is said" \
    until_true grep -q "$ck was removed" "$dir/out"
kill -TERM "$pid"
ok "and it ends well" ended
ok "with status 0" test "$status" = 0

rm -rf "$ck" "$dir/away"
start --set checkpoint.dir="$ck" --set checkpoint.fallback="$dir/second" \
    --set checkpoint.every=3
until_true test -e "$ck/latest"
block_directory
ok "with a fallback they go there" until_true test -e "$dir/second/latest"
kill -TERM "$pid"
ok "until the end" ended
ok "which is no failure" test "$status" = 0
ok "and is said" grep -q "checkpoint.fallback $dir/second" "$dir/out"
last=$(readlink "$dir/second/latest")
rm "$ck" && mv "$dir/away" "$ck"
start --set checkpoint.dir="$ck" --set checkpoint.fallback="$dir/second"
ok "from there it goes on" \
    grep -q "resumed after step $((10#${last#step-}))\$" "$dir/out"
kill -TERM "$pid"
ended
rm -r "$ck/$(readlink "$ck/latest")"
start --set checkpoint.dir="$ck" --set checkpoint.fallback="$dir/second"
ok "as it does where the last one was not put in place" \
    grep -q "resumed after step $((10#${last#step-}))\$" "$dir/out"
kill -TERM "$pid"
ended
echo "1..$n"
