#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-train told to stop, requeued, or killed while it saves.
set -u
. "$top_srcdir/tests/lib/train.sh"

for signal in TERM USR1; do
    start --set checkpoint.dir="$dir/$signal"
    kill -$signal $(ranks_of "$pid")
    ok "SIG$signal: the run ends" ended
    ok "in order" test "$status" = 0
    ok "after a step" grep -q "stopped after step" "$dir/out"
    ok "with a checkpoint" test -e \
        "$(echo "$dir/$signal"/step-*/manifest.json)"
done

# A requeued run resumes, as often as needed: each run's metrics follow those of
# the last one.
rm -rf "$dir/TERM" "$dir/lives"
for life in 1 2 3; do
    start --set checkpoint.dir="$dir/TERM" --metrics "$dir/lives"
    sleep 0.$life
    kill -USR1 $(ranks_of "$pid")
    ended
done
ok "three lives of a run log every step once" python3 -c '
import json, sys
steps = [json.loads(line)["step"] for line in open(sys.argv[1])]
assert steps == list(range(1, len(steps) + 1)), steps
' "$dir/lives"
ok "and the last one went on" grep -q "resumed after step" "$dir/out"

# Killed at any time, also in the middle of a save: checkpoints in place are
# complete.
for i in 1 2 3 4 5; do
    start --set checkpoint.dir="$dir/kill" --set checkpoint.every=1
    sleep 0.$((i * i * 3 % 10))
    [ $i -lt 5 ] || until_true test -e "$dir/kill/latest"
    kill -KILL $(ranks_of "$pid")
    ended
done
run 4 --set parallel.tp=2 --set parallel.pp=2 \
    --set checkpoint.dir="$dir/kill" --sample 1
ok "killed five times, there is a checkpoint to go on from" \
    test $status = 0 -a -n "$(echo "$dir"/kill/step-*/manifest.json)"
ok "that is the newest" test "$(grep -c skipped "$dir/out")" = 0
echo "1..$n"
