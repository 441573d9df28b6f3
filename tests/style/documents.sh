#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each folder has a README.md of five lines or fewer, and names that documents
# have in backticks exist: `file`, `folder/`, `file:function`. They are looked
# up beside the document, then from the root of the tree.
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# find_name FOLDER NAME: the path that NAME means in a document of FOLDER
find_name() {
    local path
    for path in "$1/$2" "$2"; do
        [ -e "$path" ] && echo "$path" && return
    done
    return 1
}

# check_document FILE: print each name that does not exist
check_document() {
    local file=$1 name path function
    grep -oE '`[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*/?(:[a-z_0-9]+)?`' "$file" |
        tr -d '`' | grep -E '/|\.(c|h|cc|cu|cuh|md|sh|py|am|awk|yaml|[158])(:|$)' |
        grep -vE '^(stdio|config)\.h$' | sort -u |
        while read -r name; do
            function=
            [[ $name == *:* ]] && function=${name##*:}
            if ! path=$(find_name "$(dirname "$file")" "${name%%:*}"); then
                echo "$file: ${name%%:*} does not exist"
            elif [ -n "$function" ] && ! grep -qE \
                "^[a-z].*[ *]$function\(|^$function\(" "$path"; then
                echo "$file: $path has no function $function"
            fi
        done
}

cd "$top_srcdir" || exit 1
folders=$(sed -n 's/^\([a-z][a-z_\/]*\):.*/\1/p' tests/style/arrows |
    grep -vx topology/api/plait)
for folder in topology runtime $folders tests examples docs man; do
    lines=$(cat "$folder/README.md" 2>/dev/null | wc -l)
    [ "$lines" -ge 1 ] && [ "$lines" -le 5 ] ||
        echo "$folder/README.md: $lines lines"
done >"$tmp/lines"
sed 's/^/# /' "$tmp/lines"
[ ! -s "$tmp/lines" ]
check "each folder has a README.md of five lines or fewer" $?

for file in HACKING.md CONTRIBUTING.md SECURITY.md docs/architecture.md \
    docs/testing.md $(for folder in topology runtime $folders tests examples \
        docs man; do echo "$folder/README.md"; done); do
    check_document "$file"
done >"$tmp/names" 2>&1
sed 's/^/# /' "$tmp/names"
[ ! -s "$tmp/names" ]
check "what the documents name exists" $?

printf 'See `topology/nowhere.c`, `topology/base/error.c:plait_nothing`\n' \
    >"$tmp/wrong.md"
[ "$(check_document "$tmp/wrong.md" | wc -l)" = 2 ]
check "names that mean nothing are found" $?
printf '`topology/base/error.c:plait_errorf` and `topology/`\n' >"$tmp/right.md"
[ -z "$(check_document "$tmp/right.md")" ]
check "names that mean something pass" $?
echo "1..$n"
