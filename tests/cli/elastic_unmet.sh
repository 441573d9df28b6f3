#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait run --elastic: a rank ends before all ranks have met, which nobody can
# outlive; the others do not wait for it. Or it ends as soon as they have met:
# nothing stays of the memory that they were about to share. That those go on
# which have met, elastic.sh shows.
plait=$top_builddir/plait
train=$top_builddir/plait-train
. "$top_srcdir/tests/lib/until.sh"
export OMP_NUM_THREADS=1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out

python3 -B "$top_srcdir/tests/lib/small_model.py" "$dir" gpt2 ||
    { echo "1..0 # SKIP needs python3"; exit 0; }

# unmet COMMAND ARGS...: each rank runs COMMAND before its program. A rank that
# waits to the end of its time takes 300 s.
unmet() {
    rm -rf "$dir/ck" "$dir"/pid.*
    timeout -k 9 240 "$plait" run --elastic --pin=none "${@:2}" -- bash -c \
        'echo $$ >"$0/pid.$PLAIT_RANK$PLAIT_SPARE"
        eval "$1"; exec "${@:2}"' "$dir" "$1" "$train" "$dir/c.yaml" \
        --device cpu --set train.steps=3 --set checkpoint.dir="$dir/ck" \
        >"$dir/out" 2>&1 </dev/null
    status=$?
}

# ends WHAT LINE: the run has ended, in time, with this line once
ends() {
    ok "$1: the run ends" test $status -ge 1 -a $status -ne 124 -a $status -ne 137
    ok "and one line says why" test "$(grep -cx "$2" "$dir/out")" = 1
    ok "nothing is left of it" eval '[ -z "$(living $(cat "$dir"/pid.*))" ]'
}

for rank in 0 1 2; do
    unmet "[ \$PLAIT_RANK != $rank ] || kill -KILL \$\$" --np 3
    ends "rank $rank of 3 is killed" \
        "plait: run: rank $rank was killed by signal 9 (Killed)"
done

# Somebody listens at MASTER_PORT once rank 0 waits.
waits=': </dev/tcp/127.0.0.1/$MASTER_PORT'
unmet "if [ \$PLAIT_RANK = 1 ]; then
        until ($waits) 2>/dev/null; do sleep 0.05; done
        kill -SEGV \$\$
    fi" --np 2
ends "the last is killed while the first waits for it" \
    "plait: run: rank 1 was killed by signal 11 (Segmentation fault)"

unmet '[ $PLAIT_RANK != 0 ] || exit 3' --np 3
ends "rank 0 of 3 ends with a status" \
    "plait-train: world: rank 0 ended with status 3 before all ranks had met"

unmet '[ -z "$PLAIT_SPARE" ] || kill -KILL $$' --np 2 --spares=1
ends "a spare one is killed" "plait: run: rank 2 was killed by signal 9 (Killed)"

# The launcher tells of an end by the end of a file: that of another file, which
# has got its number, is none.
unmet 'eval "exec ${PLAIT_ENDED%:*}< <(:)"' --np 2
ok "a script may use the number for a file of its own" test $status = 0
unmet 'eval "exec ${PLAIT_ENDED%:*}<&-"' --np 2
ok "or close it" test $status = 0

# shares RANK NAME WHAT: RANK is killed while it maps memory of this name that it
# has made for all
calls=$top_builddir/tests/unit/.libs/hang_calls.so
mkfifo "$dir/pipe"
shares() {
    local rank=$1 memory job
    unmet "export TEST_HANG_GO=$dir TEST_HANG_CALL=map TEST_HANG_RANK=$rank
        export TEST_HANG_PIPE=$dir/pipe TEST_HANG_FILE='$2' LD_PRELOAD=$calls" \
        --np 3 &
    job=$!
    until_true eval \
        'ls -l "/proc/$(cat "$dir/pid.$rank")/fd" | grep -q "$dir/pipe"'
    memory=$(readlink "/proc/$(cat "$dir/pid.$rank")/fd/"* | grep -m1 ^/dev/shm/)
    kill -KILL "$(cat "$dir/pid.$rank")"
    wait $job
    ok "$3" test -n "$memory"
    ok "its name is gone, too" eval \
        '! ls "$(sed "s/\(plait-[0-9a-f]*\).*/\1/" <<<"$memory")"-*'
}
hex='[0-9a-f][0-9a-f][0-9a-f]'
if [ -f "$calls" ]; then
    shares 0 "/plait-*-bells-" "rank 0 is killed as it shares what wakes ranks"
    shares 1 "/plait-*-$hex" "rank 1 is killed as it shares memory for sums"
else
    n=$((n + 1))
    echo "ok $n - sharing memory # SKIP built without shared libraries"
fi
echo "1..$n"
