#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plait.yaml(5) describes every key of the configuration, and the pages of
# plait-prep, -convert, -generate and -eval every option.
n=0

check() { # check PAGE WORD
    n=$((n + 1))
    if sed 's/\\-/-/g' "$top_srcdir/man/$1" | grep -qw -e "$2"; then
        echo "ok $n - $1: $2"
    else
        echo "not ok $n - $1: $2"
    fi
}

# The headings of a section's keys: the lines after .TP or .TQ.
headings() { # headings SECTION
    awk -v section="$1" '
        /^\.S[SH]/ { inside = $2 == section }
        inside && heading
        { heading = /^\.T[PQ]/ }' "$top_srcdir/man/plait.yaml.5"
}

for field in $(sed -n 's/.*FIELD(\([a-z]*\), "\([a-z0-9_]*\)".*/\1.\2/p' \
    "$top_srcdir/topology/job/job_config.c"); do
    n=$((n + 1))
    if headings "${field%%.*}" | grep -qw -e "${field#*.}"; then
        echo "ok $n - plait.yaml.5: $field"
    else
        echo "not ok $n - plait.yaml.5 has no heading (.TP) for" \
            "${field#*.} under .SS ${field%%.*}"
    fi
done
for section in $(sed '/#define/d' "$top_srcdir/topology/job/job_config.c" |
    grep -o 'SECTION([a-z]*)' | tr -d '()' | sed 's/SECTION//'); do
    check plait.yaml.5 "^.SS $section"
done
for program in prep convert generate eval; do
    for option in $("$top_builddir/plait-$program" --help |
        grep -o -e '--[a-z][a-z-]*' | sort -u); do
        check plait-$program.1 "$option"
    done
done
[ $n -gt 45 ] || echo "not ok - only $n words were looked for"
echo "1..$n"
