#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-train without MPI, started by plait run: the same losses as one process,
# and no process left when a rank is killed.
set -u
train=$top_builddir/plait-train
plait=$top_builddir/plait
. "$top_srcdir/tests/lib/until.sh"
export OMP_NUM_THREADS=1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out

python3 -B "$top_srcdir/tests/lib/small_model.py" "$dir" gpt2 ||
    { echo "1..0 # SKIP needs python3"; exit 0; }

# run RANKS LAYOUT ARGS...: train
run() {
    timeout -k 9 240 "$plait" run --np "$1" --pin=none $2 -- \
        "$train" "$dir/c.yaml" --device cpu "${@:3}" >"$dir/out" 2>&1 </dev/null
}

# The bound of the parity matrix.
close_by() {
    python3 -c '
import json, sys
a, b = ([json.loads(x)["loss"] for x in open(f)] for f in sys.argv[1:])
sys.exit(not (len(a) == len(b) == 10 and
              all(abs(x - y) <= 2e-5 * x for x, y in zip(a, b))))' "$@"
}

run 1 "" --metrics "$dir/one"
for case in "4 --tp=2_--dp=2 parallel.zero=3" "4 --pp=2_--tp=2" \
    "2 --cp=2" "3 --dp=3 parallel.zero=2"; do
    set -- $case
    rm -f "$dir/some"
    run "$1" "${2//_/ }" --metrics "$dir/some" ${3:+--set $3}
    ok "${2//_/ } ${3:-}: the losses of one process" \
        close_by "$dir/one" "$dir/some"
done
ok "--comm socket without a plan is refused" eval \
    '! "$train" "$dir/c.yaml" --device cpu --comm socket >"$dir/out" 2>&1 &&
    grep -q "sockets need a plan" "$dir/out"'
"$train" "$dir/c.yaml" --comm tcp >"$dir/out" 2>&1
ok "so is one that is none" test $? = 2

# killed RANK: kill one of four ranks once they train
killed() {
    local gone=$1
    : >"$dir/out"
    rm -f "$dir"/pid.*
    "$plait" run --np 4 --tp=2 --pin=none -- sh -c \
        'echo $$ >"$0/pid.$PLAIT_RANK"; exec "$1" "$0/c.yaml" --device cpu \
        --set train.steps=1000000' "$dir" "$train" >"$dir/out" 2>&1 </dev/null &
    pid=$!
    until_true grep -q "step 1/" "$dir/out"
    kill -9 "$(cat "$dir/pid.$gone")"
    ok "rank $gone is killed: the run ends" until_true eval '! kill -0 $pid 2>&1'
    wait $pid
    ok "with its status" test $? = 137
    ok "and with all of its ranks" eval \
        '[ -z "$(living $(cat "$dir"/pid.*))" ]'
    ok "one line says who is gone" eval \
        'test 1 = "$(grep -c "^plait-train:" "$dir/out")" && grep -q "^plait-train: \
rank $gone ([^ ]*, process $(cat "$dir/pid.$gone")) has ended unexpectedly; this rank stops" \
        "$dir/out"'
    ok "and one by which signal" test \
        "plait: run: rank $gone was killed by signal 9 (Killed)" = \
        "$(grep "^plait:" "$dir/out")"
}
killed 2
killed 0
echo "1..$n"
