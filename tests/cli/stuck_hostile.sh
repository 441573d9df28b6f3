#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait stuck, which root runs for the job of a user, looks at what a hostile
# user wrote: nothing of it stops the look or reaches the terminal as more than
# text.
set -u
stuck=$top_builddir/plait-stuck
hostile=$top_builddir/tests/unit/hostile_record
. "$top_srcdir/tests/lib/check.sh"
. "$top_srcdir/tests/lib/until.sh"
dir=$(mktemp -d) || exit 1
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
uid=$(id -u)
[ "$uid" != 0 ] || uid=65534

# look WAY ARGUMENTS...: what plait-stuck says of such a process
look()
{
    local way=$1
    shift
    "$hostile" "$way" "$uid" >"$dir/ready" &
    pid=$!
    until_true grep -q ready "$dir/ready" &&
        "$stuck" --pid "$pid" "$@" >"$dir/out" 2>&1
    rc=$?
    kill "$pid"
    wait "$pid" 2>/dev/null
    pid=
}

# only_text: no control characters but for the ends of lines
only_text()
{
    ! LC_ALL=C grep -q "[^ -~]" "$dir/out"
}

look plain --wait 0
[ "$rc" = 0 ] && grep -q '2 ranks, step 0: .*1 of 2 ranks' "$dir/out"
r=$?
check "a process with a record is found: $(cat "$dir/out")" $r
look escapes --wait 0
[ "$rc" = 0 ] && [ "$(wc -l <"$dir/out")" = 1 ] && only_text &&
    grep -q 'job 7?all_is_well?\[2J' "$dir/out"
r=$?
check "escape sequences and lines are printed as text" $r
look escapes --wait 0 --dump
[ "$rc" = 0 ] && only_text && [ "$(wc -l <"$dir/out")" = 1 ] &&
    grep -q '^plait-stuck-rank .* 7?all_is_well?' "$dir/out"
r=$?
check "... and are passed on as text" $r
look numbers --wait 0
[ "$rc" = 1 ] && grep -q 'no plait-train' "$dir/out"
r=$?
check "a record with wrong numbers is none: $(cat "$dir/out")" $r
look cut --wait 4
[ "$rc" -le 1 ] && [ "$(wc -l <"$dir/out")" = 1 ]
r=$?
check "a record that is cut short between the looks stops nothing: $rc" $r
if [ "$(id -u)" = 0 ]; then
    look owner --wait 0
    [ "$rc" = 1 ]
    r=$?
    check "a record that is of another user than its process is none" $r
    look plain --wait 0
    grep -q "^user $uid: " "$dir/out"
    r=$?
    check "root reads whose it is" $r

    # Two users whose processes say they are of one run and one job.
    export SLURM_JOB_ID=99$$
    "$hostile" plain "$uid" >"$dir/ready" &
    pid=$!
    "$hostile" plain $((uid - 7)) >"$dir/forged" &
    forger=$!
    until_true grep -q ready "$dir/ready"
    until_true grep -q ready "$dir/forged"
    PATH=$dir "$stuck" --wait 0 $SLURM_JOB_ID >"$dir/out" 2>&1
    grep -q "^user $uid: .*process $pid)" "$dir/out" &&
        grep -q "^user $((uid - 7)): .*process $forger)" "$dir/out" &&
        [ "$(wc -l <"$dir/out")" = 2 ]
    r=$?
    check "what two users say of one run is told apart" $r
    SLURM_JOB_UID=$uid "$stuck" --wait 0 --dump $SLURM_JOB_ID >"$dir/out" 2>&1
    [ "$(grep -c '^plait-stuck-rank' "$dir/out")" = 1 ]
    r=$?
    check "in a step of the job only the job's user counts" $r
    kill $pid $forger
    wait
    pid=
else
    check "only root looks at the processes of others # SKIP" 0
fi
echo "1..$n"
