#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait usage: which lines of a log count, and how often. tests/cluster/usage.sh
# has real ones.
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export TZ=UTC
unset SLURM_CONF

# says WHAT WANT LINE...: whether the last line for these lines of a log is WANT
says()
{
    local what=$1 want=$2 got
    shift 2
    got=$(printf '%s\n' "$@" | "$top_builddir/plait" usage - 2>&1 | tail -n 1)
    [ "$got" = "$want" ]
    check "$what" $?
    [ "$got" = "$want" ] || printf '# want: %s\n# got:  %s\n' "$want" "$got"
}
rest='of uid 77: --tp=8 --dp=4, 32 tasks on 4 nodes'
at=2026-11-29T08:01

says "slurmd's own log" "1 planned step" "[$at:43.751] [12.0] plait: step 12.0 $rest"
says "syslog" "1 planned step" \
    "Nov 29 08:01:43 n1 slurmstepd[9]: plait: step 12.0 $rest"
says "four nodes" "1 planned step" "[$at:43.751] [12.0] plait: step 12.0 $rest" \
    "n1: [$at:44] [12.0] plait: step 12.0 $rest" \
    "n2: [$at:41] [12.0] plait: step 12.0 $rest" \
    "$at:42+00:00 n3 slurmstepd[9]: plait: step 12.0 $rest"
says "two steps of a job" "2 planned steps" \
    "[$at:43] [12.0] plait: step 12.0 $rest" \
    "[$at:43] [12.1] plait: step 12.1 $rest"
says "a job that ran twice" "2 planned steps" \
    "[$at:43] [12.0] plait: step 12.0 $rest" \
    "[2026-11-29T08:04:43] [12.0] plait: step 12.0 $rest"
says "a preflight" "0 planned steps; 1 preflight" \
    "[$at:43] [12.0] plait: step 12.0 $rest, a preflight"
# A program may have any name.
says "a message that has such a text" "0 planned steps" \
    "[$at:43] [12.0] error: execve(): plait: step 12.0 $rest" \
    "[$at:43] [12.0] error: execve(): ] plait: step 12.0 $rest: No such file" \
    "[$at:43] [12.0] plait: step 12.0 ${rest/tp/zp}" \
    "[$at:43] [12.0] plait: step 12.0 ${rest/32/0}"
says "other bytes" "0 planned steps" $'\xff\x01' "" "plait: step" "[[[[]: "

printf '%s\n' "[$at:43] [12.0] plait: step 12.0 $rest" \
    "2026-11-29T09:01:50+01:00 n1 slurmstepd[9]: plait: step 13.0 $rest" \
    >"$tmp/log"
# since WANT WHEN: how many steps of the log there were since then
since()
{
    [ "$("$top_builddir/plait" usage --json --since "$2" "$tmp/log" 2>&1 |
        grep -c '"job"')" = "$1" ]
    check "since $2" $?
}
since 2 2026-11-29
since 0 2026-11-30
since 2 $at:43
since 1 $at:44
since 0 $at:51
since 0 0h
for when in yesterday 7 d -1d 2026-11-29T08 2026-1-1 7dd ''; do
    "$top_builddir/plait" usage --since "$when" "$tmp/log" >"$tmp/out" 2>&1
    [ $? = 2 ] && grep -q "^plait: usage: --since=$when: must be" "$tmp/out"
    check "since '$when' is refused" $?
done
echo "Nov 29 08:01:43 n1 slurmstepd[9]: plait: step 14.0 $rest" >>"$tmp/log"
"$top_builddir/plait" usage --since 2026-11-29 "$tmp/log" >"$tmp/out" 2>&1
[ $? = 1 ] && grep -q '^2 planned steps$' "$tmp/out" &&
    grep -q '^plait: usage: 1 line is left out' "$tmp/out"
check "a line without a date is told of" $?
"$top_builddir/plait" usage "$tmp/none" >"$tmp/out" 2>&1
[ $? = 1 ] && grep -qx "plait: usage: $tmp/none: No such file or directory" \
    "$tmp/out"
check "a log that is not there" $?
"$top_builddir/plait" usage --queued "$tmp/log" >"$tmp/out" 2>&1
[ $? = 2 ]
check "--queued reads no log" $?
echo "1..$n"
