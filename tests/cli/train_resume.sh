#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-train resumed in the same layout, bit for bit, and in another layout;
# and samples of text.
set -u
. "$top_srcdir/tests/lib/train.sh"
. "$top_srcdir/tests/lib/tier.sh"

# The fields of a metrics file that do not depend on a clock.
numbers() {
    sed 's/,"tokens_per_s.*//' "$1"
}

same() {
    diff <(numbers "$1") <(numbers "$2")
}

layouts="1:111 4:221 4:114"
! all_tier || layouts+=" 4:212"
for layout in $layouts; do
    ranks=${layout%:*} l=${layout#*:} ck=$dir/ck-$l
    size="--set parallel.tp=${l:0:1} --set parallel.pp=${l:1:1}"
    size+=" --set parallel.dp=${l:2:1} --set train.steps=12"
    [ "$l" = 114 ] && size+=" --set parallel.zero=3"
    run "$ranks" $size --metrics "$dir/whole"
    run "$ranks" $size --metrics "$dir/parts" --set checkpoint.dir="$ck" \
        --set checkpoint.every=6
    rm -rf "$ck/step-00000012"
    run "$ranks" $size --metrics "$dir/parts" --set checkpoint.dir="$ck"
    ok "tp,pp,dp=$l: 6 steps and 6 more are 12, bit for bit" \
        same "$dir/whole" "$dir/parts"
    ok "tp,pp,dp=$l: the second run resumed" \
        grep -q "resumed after step 6" "$dir/out"
done

ck=$dir/ck-114

run 4 --set parallel.tp=2 --set parallel.pp=2 --set checkpoint.dir="$ck" \
    --set train.steps=14 --resume-anyway train.steps --metrics "$dir/other"
ok "another layout goes on from that checkpoint" test $status = 0

run 1 --set checkpoint.dir="$ck" --sample 40 --sample-prompt "ab"
# Invalid UTF-8 becomes U+FFFD, one for several bytes that begin a character.
letters=$(LC_ALL=C.UTF-8 wc -m <"$dir/out")
ok "--sample prints text" test "$(head -c 2 "$dir/out")" = ab -a \
    "$letters" -gt 20 -a "$letters" -le 43
mv "$dir/out" "$dir/sample"
run 4 --set parallel.tp=2 --set parallel.pp=2 --set checkpoint.dir="$ck" \
    --sample 40 --sample-prompt "ab"
ok "and the same text in another layout" \
    cmp "$dir/sample" <(tr -d '\r' <"$dir/out")
run 1 --set checkpoint.dir="$ck" --sample 40 --sample-prompt "ab" \
    --set model.dropout=0.2 --set model.attention_dropout=0.3
ok "and with rates of dropout, which samples have not" \
    cmp "$dir/sample" <(tr -d '\r' <"$dir/out")
more="--set parallel.tp=2 --set parallel.pp=2 --set train.steps=15"
run 4 $more --set checkpoint.dir="$ck" --set model.dropout=0.2 \
    --resume-anyway train.steps
ok "a run does not go on with another rate" grep -q "model.dropout was 0 there \
and is 0.2 here; add --resume-anyway model.dropout" "$dir/out"
run 4 $more --set checkpoint.dir="$ck" --set model.dropout=0.2 \
    --resume-anyway train.steps,model.dropout
ok "unless it is told to, and says the rates" grep -q "it trains with dropout: \
model.dropout 0.2, model.attention_dropout 0" "$dir/out"
run 1 --sample 5
ok "--sample without a checkpoint says so" grep -q "no checkpoint" "$dir/out"
echo "1..$n"
