#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# If a rank of plait-train dies, the others end, and the reason is printed once.
set -u
. "$top_srcdir/tests/lib/train.sh"
. "$top_srcdir/tests/lib/tier.sh"

start
kill -KILL $(ranks_of "$pid" | tail -n 1)
ok "a rank that dies ends the others" ended
ok "and the run has failed" test "$status" != 0

# Here mpirun lets the other ranks go on, which notice the loss by themselves.
OMPI_MCA_orte_enable_recovery=1
export OMPI_MCA_orte_enable_recovery
start
dead=$(ranks_of "$pid" | sed -n 2p)
kill -KILL "$dead"
ok "ranks that are left alone end" ended
ok "and one of them says why, once" test 1 = \
    "$(grep -c "rank [0-3] (process $dead of this node) has ended" "$dir/out")"
unset OMPI_MCA_orte_enable_recovery

# Of the places where a rank may lack memory the quick tier tries some.
alone="4 10 13 16" alone_malloc="1 3 5" together="1 7 12" together_malloc="2 5"
if all_tier; then
    alone="4 6 8 10 11 12 13 14 15 16" alone_malloc="1 2 3 4 5"
    together="1 4 7 9 11 12 13" together_malloc="2 3 4 5"
fi

# Rank 1 lacks memory at one place while ranks connect. The launch does not end
# the others: each stays until all have ended.
inject=$(readlink -f "$top_builddir/tests/jobs/.libs/inject.so")
# lacks_memory CALL N: at the Nth call of CALL
lacks_memory() {
    rm -rf "$dir/left"
    mkdir "$dir/left"
    INJECT="1 $1 $2 12" INJECT_MARK=$dir/left/hit timeout -k 1 240 \
        "$top_builddir/plait" run --np 4 --dp=4 --pin=none -- sh -c '
        LD_PRELOAD=$0 "$1" "$2/c.yaml" --device cpu --comm socket \
            --set train.steps=1 >"$2/left/out.$PLAIT_RANK" 2>&1
        echo $? >"$2/left/status.$PLAIT_RANK"
        until [ $(ls "$2/left" | grep -c status) = 4 ]; do sleep 0.1; done' \
        "$inject" "$(readlink -f "$train")" "$dir" >"$dir/out" 2>&1
    [ -e "$dir/left/hit" ] && [ $(ls "$dir/left" | grep -c status) = 4 ]
}
if [ -f "$inject" ] && [ -z "${ASAN_OPTIONS:-}" ]; then
    for call in $alone; do
        ok "no memory at call $call: all end" lacks_memory calloc $call
    done
    for call in $alone_malloc; do
        ok "... at call $call of malloc" lacks_memory malloc $call
    done

    # The launch ends the others as soon as one has ended: who knows the reason
    # has said it by then. says_so RANK CALL N LAUNCHER...
    says_so() {
        local hit=$dir/hit
        rm -f "$hit"
        INJECT="$1 $2 $3 12" INJECT_MARK=$hit LD_PRELOAD=$inject timeout 240 \
            "${@:4}" "$(readlink -f "$train")" "$dir/c.yaml" --device cpu \
            --set train.steps=1 >"$dir/out" 2>&1 && { [ -e "$hit" ]; return; }
        [ -e "$hit" ] && grep -q "^plait-train: .*memory" "$dir/out"
    }
    run=("$top_builddir/plait" run --np 2 --dp=2 --pin=none --)
    for rank in 0 1; do
        for call in $together; do
            ok "rank $rank has no memory at call $call: it is said" \
                says_so $rank calloc $call "${run[@]}"
        done
        for call in $together_malloc; do
            ok "... at call $call of malloc" \
                says_so $rank malloc $call "${run[@]}"
        done
    done
else
    echo "ok $((n += 1)) - no memory # SKIP no library to preload"
fi
echo "1..$n"
