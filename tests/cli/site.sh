#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait site --explain: which policies apply to a job, and why.
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/site.yaml" <<'END'
policies:
  - {max: {tp: 8}}
  - {partition: "sec*", enabled: false}
  - {partition: main, account: "ml-*", max: {pp: 2}, tp_within: nvlink}
  - {user: guest, qos: low, max: {dp: 4}}
  - {gpu: h100, max: {cp: 2}}
END

# says PATTERN ARGUMENT...: whether it exits with 0 and a line of it matches
says() {
    local pattern=$1
    shift
    "$top_builddir/plait" site --explain --file "$tmp/site.yaml" "$@" \
        >"$tmp/out" 2>&1 && grep -qE -- "$pattern" "$tmp/out"
}

says '^policy 1 applies: it is for all jobs$'
check "a policy for all" $?
says '^policy 2 does not apply: partition \(not given\) is not sec\*$'
check "a partition that is not given" $?
says '^policy 2 applies: partition main,secret matches sec\*$' -p main,secret
check "a list of partitions" $?
says '^    no planned step may start' -p secret,main &&
    grep -q '^policy 2 applies' "$tmp/out"
check "... in any order" $?
says '^policy 3 applies: partition main matches main, account ml-a matches ml-\*$' \
    -p main -A ml-a && grep -q '^    --pp=2 at most$' "$tmp/out" &&
    grep -q '^    tp groups stay within' "$tmp/out"
check "two keys that match, and the limits" $?
says '^policy 3 does not apply: account bio is not ml-\*$' -p main -A bio
check "only the key that does not is named" $?
says '^policy 4 does not apply: qos high is not low$' -u guest -q high
check "user and qos" $?
says '^policy 5 applies: gpu gpu:h100:8 matches h100$' --gpus gpu:h100:8
check "a type of GPU" $?
says '^3 of 5 policies apply; a job must comply with all' -u guest -q low --gpus h100
check "how many hold" $?
printf 'policies:\n  - {partition: a, mix: 3}\n' >"$tmp/site.yaml"
"$top_builddir/plait" site --explain --file "$tmp/site.yaml" 2>"$tmp/err"
[ $? = 1 ] && grep -q 'site.yaml:2:.*mix' "$tmp/err"
check "an error in the file" $?
"$top_builddir/plait" site 2>"$tmp/err"
[ $? = 2 ] && grep -q 'explain is missing' "$tmp/err"
check "wrong usage" $?
echo "1..$n"
