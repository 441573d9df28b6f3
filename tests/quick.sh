#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tests of tests/quick.table that can be affected by what differs from HEAD
# or, if nothing does, from the commit in which this branch left main.
#
#   tests/quick.sh tests TEST...        prints those of them that TESTs name
#   tests/quick.sh programs TEST... -- PROGRAM...
#                                       prints the programs that TESTs name in
#                                       their text; `make` knows those that
#                                       are a TEST themselves
set -u
cd "$top_srcdir" || exit 1
mode=$1
shift
if [ "$mode" = programs ]; then
    scripts=()
    for (( ; $# > 0; )); do
        [ "$1" != -- ] || break
        [[ $1 != *.sh ]] || scripts+=("$1")
        shift
    done
    shift
    for program; do
        [ ${#scripts[@]} = 0 ] || ! grep -qwF "$program" "${scripts[@]}" ||
            echo "$program"
    done
    exit 0
fi
changed=$(git diff --name-only HEAD && git ls-files -o --exclude-standard) ||
    exit 1
[ -n "$changed" ] || changed=$(git diff --name-only \
    "$(git merge-base HEAD main 2>/dev/null || echo HEAD~1)" HEAD)
{
    printf 'test %s\n' "$@"
    printf 'changed %s\n' $changed
} | awk '
    FILENAME != "-" {
        if (!/^#/ && split($0, part, ":") == 2)
            of[part[1]] = part[2]
        next
    }
    $1 == "test" {
        known[$2] = 1
        if ($2 ~ /^tests\/style\// && !wanted[$2]++)
            print $2
        next
    }
    {
        add($2) # a test that was changed itself
        sub(/\.[ch]$/, "", $2)
        add($2)
        longest = ""
        for (key in of)
            if (index($2, key) == 1 && length(key) > length(longest) &&
                substr($2, length(key) + 1, 1) ~ /^([\/_]|$)/)
                longest = key
        if (longest != "") {
            n = split(of[longest], name, " ")
            for (i = 1; i <= n; i++)
                add("tests/" name[i])
        }
    }
    function add(test)
    {
        if (test in known && !wanted[test]++)
            print test
    }' tests/quick.table -
