#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait simulate as a user sees it: the timeline, the names of its parts, slow
# ranks and links, and its exit codes.
plait=$top_builddir/plait
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C PLAIT_SITE=
. "$top_srcdir/tests/lib/check.sh"

refused() { # code text option...
    local code=$1 text=$2 got
    shift 2
    timeout 240 "$plait" simulate "$@" >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ $got = "$code" ] && [ "$(cat "$tmp/err")" = "plait: $text" ] &&
        [ ! -s "$tmp/out" ]
    check "$text" $?
    [ "$(cat "$tmp/err")" = "plait: $text" ] ||
        sed "s/^/# exit $got: /" "$tmp/err"
}

# number KEY FILE: the first number of that name in a JSON document
number() {
    grep -m1 "\"$1\":" "$2" | sed 's/.*: //; s/,$//'
}

# holds EXPRESSION: whether an expression of numbers is true
holds() {
    awk "BEGIN { exit !($1) }"
}

cat >"$tmp/model.yaml" <<END
model: {family: llama, layers: 32, hidden: 4096, heads: 32, kv_heads: 8,
        ffn: 14336, vocab: 128256, seq_len: 8192}
parallel: {tp: 2, pp: 4, dp: 2, sequence: true}
train: {global_batch: 32, micro_batch: 1, precision: bf16}
END
cd "$tmp" || exit 1

for schedule in naive gpipe 1f1b interleaved zb-h1; do
    virtual=1
    [ $schedule = interleaved ] && virtual=2
    "$plait" simulate --model model.yaml --schedule $schedule \
        --virtual $virtual >text
    check "$schedule is simulated" $?
    [ "$(sed -n '/0 s/,/0-9 forward/p' text | grep -c '^pp [0-3]')" = 4 ]
    check "$schedule: a line for each stage" $?
done
grep -q 'A-J weight gradients' text &&
    grep -q '^pp 0.*[A-F]#$' text
check 'zb-h1 ends with weight gradients' $?
awk '/^pp [0-3].*%/ { sum = $3 + $5 + $7 + $9 + $11
        if (sum < 99.7 || sum > 100.3) exit 1; seen++ }
     END { exit seen != 4 }' text
check 'the shares of each rank add up' $?
for word in '  bubble' 'exposed communication' 'plait estimate, by formula'; do
    grep -q "$word" text
    check "names: $word" $?
done

# Where passes are narrower than columns, each character would be that of a
# pass drawn at random: 0 is followed by 1, and a by b, on the last stage.
"$plait" simulate --model model.yaml --global-batch 1024 >text
[ "$(grep -c '^pp [0-3].* \.\.\. ' text)" = 4 ] &&
    grep -q '\.\.\. the first and the last .* s of .* s are drawn$' text &&
    [ "$(grep '^pp 3' text | head -n 1 | cut -c9- | sed 's/ \.\.\. .*//' |
        tr -cd a-j | tr -s a-j | cut -c1-8)" = abcdefgh ] &&
    [ "$(wc -L <text)" -le 100 ]
check 'of many micro-batches the first and the last are drawn' $?
"$plait" simulate --model model.yaml >text && ! grep -q '^pp .* \.\.\. ' text
check 'of a few all are' $?

"$plait" simulate --model model.yaml --json >plain.json
check 'JSON' $?
for key in step_s estimate_step_s bubble exposed tokens_per_s mfu timeline \
    ranks; do
    grep -q "\"$key\":" plain.json
    check "JSON has $key" $?
done
"$plait" estimate --model model.yaml --json >estimate.json
[ "$(number step_s estimate.json)" = "$(number estimate_step_s plain.json)" ]
check 'its estimate is that of plait estimate' $?
holds "$(number step_s plain.json) <= $(number step_s estimate.json)"
check 'overlap only helps' $?

for what in activations both; do
    "$plait" simulate --model model.yaml --set parallel.offload=$what \
        --json >away.json
    a=$(number step_s away.json) b=$(number estimate_step_s away.json)
    holds "$a > 1.2 * $(number step_s plain.json) && $a > 0.97 * $b && \
        $a <= $b"
    check "offload: $what takes its time" $?
done

# Rank 5 is in the second stage (tp 2, dp 2): all other ranks wait for it.
"$plait" simulate --model model.yaml --slow rank=5:1.5 --json >slow.json
holds "$(number step_s slow.json) > 1.3 * $(number step_s plain.json)"
check 'a straggler holds up the step' $?
[ "$(number undisturbed_step_s slow.json)" = "$(number step_s plain.json)" ]
check 'and the step without it stands beside' $?
for link in 0-1 0-2 0-4; do # tp, dp, pp
    "$plait" simulate --model model.yaml --slow link=$link:50 --json >slow.json
    holds "$(number step_s slow.json) > 1.01 * $(number step_s plain.json)"
    check "a slow link $link costs" $?
done
cp slow.json other.json # both directions of one link
"$plait" simulate --model model.yaml --slow link=4-0:50 --json | cmp - other.json
check "... and is 4-0 as well" $?

"$plait" simulate --model model.yaml --slow rank=5:1.5 --svg step.svg
check 'SVG' $?
grep -q '^<svg' step.svg && grep -q 'slow rank=5:1.5' step.svg &&
    [ "$(tail -n1 step.svg)" = '</svg>' ] &&
    [ "$(grep -o 'class="f edge"' step.svg | wc -l)" -ge 64 ]
check 'with a box for each forward pass, and what is slow' $?
for layout in '--tp=4 --pp=4 --dp=auto --gpus=64 --global-batch=2048' \
    '--pp=16 --dp=auto --gpus=32 --schedule=interleaved --virtual=2
        --global-batch=1024'; do
    "$plait" simulate --model model.yaml $layout --micro-batch=1 --zero=1 \
        --svg many.svg >/dev/null 2>err && [ "$(wc -c <many.svg)" -lt 200000 ] &&
        grep -q '>steady part: [0-9]* of 512<' many.svg &&
        grep -q '</title>' many.svg && grep -q prefers-color-scheme many.svg
    check "512 micro-batches, $(wc -c <many.svg) bytes: start, end, and shares \
of what lies between" $?
done

for mode in each diloco; do
    "$plait" simulate --model model.yaml --gpus 64 --tp 8 --pp 2 --dp 4 \
        --set sync.mode=$mode --json >$mode.json || break
    "$plait" estimate --model model.yaml --gpus 64 --tp 8 --pp 2 --dp 4 \
        --set sync.mode=$mode --json >$mode.estimate
done
rare=$(number step_s diloco.json) often=$(number step_s each.json)
holds "$rare > 0 && $rare < 0.99 * $often" &&
    holds "$rare < 1.03 * $(number step_s diloco.estimate)"
check "replicas that rarely meet: $rare of $often s" $?

# The most that is not the meetings' is that of replicas that never meet.
for key in steps=1000 steps=10 gradients=fp8 delay=5; do
    for command in estimate simulate; do
        "$plait" $command --model model.yaml --gpus 64 --tp 8 --pp 2 --dp 4 \
            --set train.steps=1000 --set sync.mode=diloco \
            --set sync.steps=10 --set sync.$key --json >$command.$key || break
    done
done
for command in estimate simulate; do
    never=$(number step_s $command.steps=1000)
    whole=$(number step_s $command.steps=10)
    narrow=$(number step_s $command.gradients=fp8)
    beside=$(number step_s $command.delay=5)
    holds "$whole > $never && $narrow - $never < 0.6 * ($whole - $never) &&
        $narrow - $never > 0.4 * ($whole - $never) &&
        $beside < $never + 0.6 * ($whole - $never)"
    check "$command: what replicas send: $never $narrow $beside $whole s" $?
done

refused 2 'simulate: --model is missing'
refused 2 'simulate: give one of --json and --svg' --model model.yaml \
    --json --svg x
refused 1 '--slow rank=16:2: ranks are 0 to 15' --model model.yaml \
    --slow rank=16:2
for bad in rank=3 rank=3:0 rank=-1:2 link=3:2 3:2 rank=3:2x link=1-2:nan; do
    refused 1 "--slow $bad: must be rank=R:FACTOR or link=A-B:FACTOR, as in rank=3:1.5" \
        --model model.yaml --slow $bad
done
refused 1 '--slow link=0-8:2: these two do not communicate; they must be neighbours along one of tp, cp, dp and pp' \
    --model model.yaml --slow link=0-8:2
refused 2 'schedule interleaved: 16 micro-batches are not divisible by pp 3' \
    --model model.yaml --schedule interleaved --virtual 2 --pp 3 \
    --gpus 6 --tp 1 --dp 2
echo "1..$n"
