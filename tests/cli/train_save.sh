#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of plait-train: written while training goes on, on slow and full
# disks, corrupt ones, those of a run that was given up.
set -u
. "$top_srcdir/tests/lib/train.sh"

# Written beside the following steps, a checkpoint has the same contents.
save=(4 --set parallel.tp=2 --set parallel.dp=2 --set checkpoint.every=2
    --set checkpoint.keep=0 --set train.steps=8 --set lr.schedule=constant)
run "${save[@]}" --set checkpoint.dir="$dir/blocking" \
    --set checkpoint.async=false
run "${save[@]}" --set checkpoint.dir="$dir/async"
ok "checkpoint.async: the same four checkpoints, bit for bit" \
    diff -r "$dir/blocking" "$dir/async"

# A disk that syncs the first checkpoint only when the test permits it.
calls=$(cd "$top_builddir" && pwd)/tests/unit/.libs/hang_calls.so
touch "$dir/held"
LD_PRELOAD=$calls TEST_HANG_GO=$dir/held TEST_HANG_CALL=sync \
    TEST_HANG_RANK=0 TEST_HANG_FILE=rank-00000 timeout 240 sh "$mpirun" 1 \
    "$train" "$dir/c.yaml" --set train.steps=100 --metrics "$dir/m" \
    --set checkpoint.every=50 --set checkpoint.dir="$dir/slow" \
    --set log.profile="$dir/beside" >"$dir/out" 2>&1 </dev/null &
pid=$!
until_true eval 'ls "$dir"/slow/.step-*/rank-00000.safetensors'
before=$(wc -l <"$dir/m")
ok "steps go on while a checkpoint is written" \
    until_true eval '[ "$(wc -l <"$dir/m")" -ge $((before + 2)) ]'
ok "which is not in place then" test ! -e "$dir/slow/latest"
rm "$dir/held"
ok "and is at the end" eval 'ended && [ "$status" = 0 ] &&
    [ -e "$dir/slow/step-00000050/manifest.json" ]'
ok "the trace has the steps beside the write" python3 -c '
import json, sys
events = json.load(open(sys.argv[1] + "/rank-00000.json"))
begin, end = ([e["ts"] for e in events if e["name"] == "write" and
               e["ph"] == p] for p in "be")
steps = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == "step"]
beside = sum(begin[0] < a and b < end[0] for a, b in steps)
assert beside > 0, (begin, end, beside)
' "$dir/beside"

# Room for one checkpoint and half of the next.
full='mount -t tmpfs -o size=$0 none "$1" && shift && exec "$@"'
size=$(du -sk "$dir/async/step-00000002" | cut -f 1)
mkdir "$dir/small"
unshare=$(for u in "unshare -m" "unshare -rm"; do
    $u sh -c "$full" 1m "$dir/small" true 2>/dev/null && echo "$u" && break
done)
if [ -n "$unshare" ]; then
    timeout 240 $unshare sh -c "$full" $((size * 3 / 2))k "$dir/small" \
        sh -c '"$@"; echo "exit $?"; ls -A "$0"' "$dir/small" \
        sh "$mpirun" 4 "$train" "$dir/c.yaml" --set parallel.tp=2 \
        --set parallel.dp=2 --set checkpoint.dir="$dir/small" \
        --set checkpoint.every=5 >"$dir/out" 2>&1 </dev/null
    ok "a full disk fails the run" grep -q "^exit 1" "$dir/out"
    ok "at the end, with one line" test "$(grep -v "could not be saved" \
        "$dir/out" | grep -c '^plait-train: .*No space left')" = 1
    ok "the save before was said, and tried again" test "$(grep -c \
        '^plait-train: .*could not be saved: .*No space left' "$dir/out")" = 1
    ok "with the key that gives it a second place" grep -q \
        "tries again; checkpoint.fallback may name a second place" "$dir/out"
    ok "and the checkpoint before is all that is left" \
        test "$(sed '1,/^exit/d' "$dir/out" | tr '\n' ' ')" = \
        "latest step-00000005 "
else
    n=$((n + 1))
    echo "ok $n # SKIP needs leave to mount"
fi

# A directory that a person has put into an old checkpoint.
mkdir -p "$dir/kept/step-00000001/mine"
run 1 --set checkpoint.dir="$dir/kept" --set checkpoint.every=2 \
    --set checkpoint.keep=1 --set train.steps=6 --resume none
ok "an old checkpoint that cannot be removed fails no save" eval \
    'test $status = 0 && [ "$(ls "$dir/kept" | tr "\n" " ")" = \
    "latest step-00000001 step-00000006 " ]'
ok "and is told" grep -q \
    "step-00000001: cannot remove the old checkpoint: Is a directory" "$dir/out"

# Damaged checkpoints are skipped with a message, on all ranks.
ck=$dir/async
truncate -s -1 "$ck/step-00000008/rank-00000.safetensors"
rm "$ck/step-00000006/manifest.json"
run "${save[@]}" --set checkpoint.dir="$ck"
ok "the newest that is whole" grep -q "resumed after step 4" "$dir/out"
ok "says what it skipped" test "$(grep -c \
    "^plait-train: checkpoint of step .*skipped" "$dir/out")" = 2
ok "once" test "$(grep -c "^plait-train:" "$dir/out")" = 2
ok "and why" grep -q "step 8 skipped: .*truncated or changed" "$dir/out"
ok "and writes them again" diff -r "$dir/blocking" "$ck"
rm -f "$ck"/step-*/manifest.json
run "${save[@]}" --set checkpoint.dir="$ck"
ok "none is whole: refused" test $status = 1 -a "$(grep -c \
    "^plait-train: .*: none of the 4 checkpoints is complete" "$dir/out")" = 1
run "${save[@]}" --set checkpoint.dir="$ck" --resume none
ok "--resume none starts anew" diff -r "$dir/blocking" "$ck"

# A run that is resumed from an older checkpoint: the later ones stay, but it
# never resumes from those.
run "${save[@]}" --set checkpoint.dir="$ck" --resume "$ck/step-00000002" \
    --set train.steps=3
ok "from an older one to step 3" test "$(readlink "$ck/latest")" = \
    step-00000003 -a -d "$ck/step-00000008"
run "${save[@]}" --set checkpoint.dir="$ck"
ok "auto goes on from there" grep -q "resumed after step 3" "$dir/out"
ok "and says what it passes over" test "$(grep -c \
    "^plait-train: .*ignored .*: 3, of an abandoned run" "$dir/out")" = 1
rm -r "$ck"/step-0000000[2346]
ln -sfn step-00000003 "$ck/latest"
run "${save[@]}" --set checkpoint.dir="$ck"
ok "where nothing is left of it none is taken" test $status = 1 -a \
    "$(grep -c "^plait-train: .* names and all before it are gone" "$dir/out")" = 1
echo "1..$n"
