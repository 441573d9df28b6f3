#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait run --elastic: during training ranks are killed or stopped, and the
# others go on in the same processes to the losses of an undisturbed run.
set -u
train=$top_builddir/plait-train
plait=$top_builddir/plait
. "$top_srcdir/tests/lib/until.sh"
. "$top_srcdir/tests/lib/tier.sh"
export OMP_NUM_THREADS=1
dir=$(mktemp -d) || exit 1
pid=
trap '[ -n "$pid" ] && kill -9 $pid 2>/dev/null; rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out
steps=120
apart= # the steps at least between two kills, the first of which is mended
RANDOM=${PLAIT_TEST_SEED:=$$}
echo "# PLAIT_TEST_SEED=$PLAIT_TEST_SEED"

python3 -B "$top_srcdir/tests/lib/small_model.py" "$dir" gpt2 ||
    { echo "1..0 # SKIP needs python3"; exit 0; }

# begin RANKS LAYOUT ARGS...: train in the background; $pid is the launcher
begin() {
    rm -rf "$dir/ck" "$dir"/m* "$dir"/pid.*
    : >"$dir/m"
    timeout -k 9 240 "$plait" run --elastic --np "$1" --pin=none $2 -- sh -c \
        'echo $$ >"$0/pid.${PLAIT_SPARE:+s}${PLAIT_SPARE:-$PLAIT_RANK}"
        exec "$@" >>"$0/out" 2>&1' "$dir" \
        "$train" "$dir/c.yaml" --device cpu --set train.steps=$steps \
        --set checkpoint.dir="$dir/ck" --metrics "$dir/m" "${@:3}" \
        >"$dir/out" 2>&1 </dev/null &
    pid=$!
}

steps_made() { [ "$(wc -l <"$dir/m")" -ge "$1" ]; }

# kill_at STEP RANK [SIGNAL]: send it as soon as that step is in the metrics
kill_at() {
    for ((i = 0; i < 12000; i++)); do
        steps_made "$1" && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    killed=$(date +%s.%N)
    kill "-${3:-9}" "$(cat "$dir/pid.$2")"
}

# mended N: whether N losses are mended, or the run has ended
mended() {
    [ "$(grep -c "back at step" "$dir/out")" -ge "$1" ] || ! kill -0 $pid
}

finish() {
    wait $pid
    status=$?
    pid=
}

close_by() {
    python3 -B "$top_srcdir/tests/lib/same_losses.py" "$@" $steps
}

# Prints what a loss cost: the test knows the time until it was noticed, the
# ranks report the other parts.
say_parts() {
    python3 -c '
import json, re, sys
starts = [json.loads(x) for x in open(sys.argv[1] + "/m.starts")]
print("#   notice %.2f s" % (starts[-1]["opened"] - float(sys.argv[2])))
for line in open(sys.argv[1] + "/out"):
    if re.search("is gone in step|back at step", line):
        print("#   " + line.strip())' "$dir" "$killed"
}

"$train" "$dir/c.yaml" --device cpu --set train.steps=$steps \
    --metrics "$dir/one" >"$dir/out" 2>&1 ||
    { cat "$dir/out"; echo "1..0 # SKIP plait-train does not run"; exit 0; }

# hurt WHAT RANKS LAYOUT EVERY RANK...: kill these ranks one by one; EVERY may
# contain further settings
hurt() {
    local what=$1 at=$((RANDOM % 40 + 12)) killed_ranks=0
    begin "$2" "$3" --set checkpoint.every=$4 # and what else is in $4
    for rank in "${@:5}"; do
        kill_at $at "$rank"
        ((++killed_ranks))
        at=$((at + RANDOM % 20 + ${apart:-0}))
        [ -z "$apart" ] || until_true mended $killed_ranks
    done
    finish
    ok "$what: ends well" test $status = 0
    # the exit status is 0 if a single rank ends well
    ok "no rank ends otherwise" eval \
        '! grep "Sanitizer\|runtime error\|plait-train: " "$dir/out" |
            grep -v "plait-train: \(rank\|a spare rank\|back at step\) "'
    ok "goes on without the killed" grep -q "is gone in step" "$dir/out"
    ok "to the losses of a run that nobody hurt" close_by "$dir/one" "$dir/m"
    say_parts
}

hurt "dp 4, one is killed" 4 --dp=4 10 $((RANDOM % 3 + 1))
! all_tier || hurt "dp 4, the first" 4 --dp=4 10 0
! all_tier || hurt "dp 4, amid saves, two in a row" 4 --dp=4 1 2 $((RANDOM % 2 * 3))
# after the first loss, rank 2 or 3 has no seat and waits
apart=0
one=$((RANDOM % 4)) other=$((RANDOM % 2))
[ $one != $other ] || other=$((1 - one))
hurt "tp 2 dp 2, one, then one of those left with a seat" 4 \
    "--tp=2 --dp=2" 7 $one $other
ok "whose seat is taken" \
    grep -q "dp 1 of 2 (1 spare rank takes a seat) from" "$dir/out"
ok "nothing is left of it" eval '[ -z "$(living $(cat "$dir"/pid.*))" ]'

if all_tier; then
    hurt "tp 2 pp 2 and two spare ones, the first, then another" 4 \
        "--tp=2 --pp=2 --spares=2" 7 0 $((RANDOM % 3 + 1))
    ok "the first seat is taken, and one waits" \
        grep -q "1 spare rank takes a seat, 1 rank waits" "$dir/out"
    ok "then the other, and none waits" \
        grep -q "dp 1 of 1 (1 spare rank takes a seat) from" "$dir/out"
    ok "nothing is left of it, nor a spare one" \
        eval '[ -z "$(living $(cat "$dir"/pid.*))" ]'
fi

# No checkpoint file is ever written: the run resumes from copies in memory, and
# repeats no more steps than lie between two copies.
from_memory() {
    ok "from memory, each time" eval 'test "$(grep -c "is gone in step" \
        "$dir/out")" = "$(grep -c "from step [0-9]* in memory" "$dir/out")"'
    ok "at most 10 steps are made again" awk '/in memory, [0-9]+ step/ {
        sub(".* in memory, ", ""); if ($1 + 0 > 10) exit 1 }' "$dir/out"
    grep "copies in memory" "$dir/out" | sed 's/^/#   /'
}
copies="--set checkpoint.memory=10"
apart=5 # two at once may be each other's partners, and both copies lost
zeros="$((RANDOM % 2)) $((RANDOM % 2 + 2))"
all_tier || zeros=$((RANDOM % 4))
for zero in $zeros; do
    hurt "dp 4 zero $zero, copies in memory, two killed" 4 --dp=4 \
        "100000 $copies --set parallel.zero=$zero" \
        $((RANDOM % 2)) $((RANDOM % 2 + 2))
    from_memory
done
hurt "tp 2 pp 2 and a spare one, copies in memory" 4 \
    "--tp=2 --pp=2 --spares=1" "100000 $copies" $((RANDOM % 4))
from_memory
if all_tier; then
    hurt "tp 2 dp 2 zero 1, copies in memory, two killed" 4 "--tp=2 --dp=2" \
        "100000 $copies --set parallel.zero=1" $one \
        $(((one + 1 + RANDOM % 3) % 4))
    from_memory
fi

# stopped WHAT SECONDS RANKS LAYOUT RANK ARGS...: stop the rank at a random
# step, and continue it SECONDS after the others have resumed; 0: never
stopped() {
    local rank=$5
    begin "$3" "$4" "${@:6}"
    kill_at $((RANDOM % 40 + 12)) "$rank" STOP
    until_true eval 'grep -q "^plait-train: rank $rank .* is gone in step" \
        "$dir/out" || ! kill -0 $pid'
    until_true mended 1
    [ "$2" = 0 ] || { sleep "$2"; kill -CONT "$(cat "$dir/pid.$rank")"; }
    finish
    ok "$1: ends well" test $status = 0
    ok "the rank is named, as stopped" grep -Eq "plait-train: step [0-9]+ has \
not ended for 12 s \(train.timeout\): .*rank $rank \(.* is stopped by a signal.*; \
going on without the ranks that do not answer$" "$dir/out"
    ok "and left out" grep -Eq "^plait-train: rank $rank \(.*, process $(cat \
        "$dir/pid.$rank"), which does not answer\) is gone in step" "$dir/out"
    ok "to the losses of a run that nobody hurt" close_by "$dir/one" "$dir/m"
    ok "once it is continued it says that it was left out, in one line" eval \
        'test "$(grep -c "^plait-train: rank $rank did not answer, and the others \
have gone on without it; this rank ends$" "$dir/out")" = 1 &&
        ! grep "^plait-train: " "$dir/out" | grep -vE " (step [0-9]+ has not \
ended|(rank|no rank|back at step) .*)"'
    ok "nothing is left of it" eval '[ -z "$(living $(cat "$dir"/pid.*))" ]'
    say_parts
}
limit="--set train.timeout=12" # a busy machine may hold a step up for seconds
stopped "dp 3, one is stopped and continued" 0.2 3 --dp=3 \
    $((RANDOM % 2 + 1)) $limit --set checkpoint.every=10
if all_tier; then
    stopped "tp 2 and a spare one, the first is stopped for ever" 0 2 \
        "--tp=2 --spares=1" 0 $limit --set checkpoint.every=100000 $copies
    ok "whose seat the spare one takes" \
        grep -q "dp 1 of 1 (1 spare rank takes a seat) from" "$dir/out"
fi

# The others wait for a rank that is stopped for a short time.
begin 2 --dp=2 --set train.timeout=60 --set checkpoint.every=50
kill_at $((RANDOM % 40 + 12)) 1 STOP
sleep 1
kill -CONT "$(cat "$dir/pid.1")"
finish
ok "a rank that is stopped for a second is waited for" eval 'test $status = 0 &&
    ! grep "is gone" "$dir/out" && close_by "$dir/one" "$dir/m"'

begin 2 "--tp=2 --spares=1" --set checkpoint.every=5
# ticks RANK: clock ticks of processor time that the rank has used
ticks() { cut -d" " -f14,15 "/proc/$(cat "$dir/pid.$1")/stat" | tr " " +; }
until_true eval 'steps_made 20 || ! kill -0 $pid'
spare=$(ticks s1) rank=$(ticks 1)
until_true eval 'steps_made 80 || ! kill -0 $pid'
spare=$(($(ticks s1) - ($spare))) rank=$(($(ticks 1) - ($rank)))
finish
echo "# processor ticks in 60 steps: a rank $rank, the spare one $spare"
ok "a spare one sleeps" test $((spare * 4)) -lt "$rank"
ok "a spare one ends with the run" eval 'test $status = 0 &&
    [ -z "$(living $(cat "$dir"/pid.*))" ]'

begin 2 "--tp=2 --spares=1" --set checkpoint.dir=
finish
ok "a spare one ends with a run that is refused" eval 'test $status = 1 &&
    grep -q "elastic: checkpoint.dir is missing" "$dir/out" &&
    [ -z "$(living $(cat "$dir"/pid.*))" ]'

begin 2 --tp=2 --set checkpoint.every=5
kill_at 12 1
finish
ok "too few are left: the run ends" test $status != 0
ok "and says why in one line" test \
    "$(grep -c '^plait-train: .*no layout with tp 2' "$dir/out")" = 1

begin 2 --dp=2 --set checkpoint.dir=
finish
ok "without checkpoints it is refused" eval 'test $status = 1 &&
    grep -q "elastic: checkpoint.dir is missing" "$dir/out"'
"$train" "$dir/c.yaml" --device cpu --set checkpoint.memory=10 \
    --set checkpoint.dir="$dir/ck" >"$dir/out" 2>&1
ok "copies in memory without it are refused" test $? = 1
ok "by the key's name" grep -q "checkpoint.memory: copies are for" "$dir/out"
"$plait" run --elastic true >"$dir/out" 2>&1
ok "without --np it is wrong usage" test $? = 2
"$plait" run --np 1 --spares=1 true >"$dir/out" 2>&1
ok "as are spare ones without it" test $? = 2
ok "which says what they go with" \
    grep -q -e "--spares goes with --elastic" "$dir/out"
"$plait" run --elastic --np 1 --spares=1 --pin=none "$top_builddir/plait-eval" \
    "$dir" "$dir" >"$dir/out" 2>&1
ok "and spare ones of another program" test $? = 2
ok "in one line" test "$(grep -c "only plait-train" "$dir/out")" = 1
echo "1..$n"
