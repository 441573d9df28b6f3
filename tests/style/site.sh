#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The documents build as a site without warnings, each man page is in it, and no
# page loads anything from a network.
. "$top_srcdir/tests/lib/check.sh"
command -v mkdocs >/dev/null && command -v man >/dev/null &&
    command -v col >/dev/null ||
    { echo "1..0 # SKIP needs mkdocs and man"; exit 0; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

"$top_srcdir/docs/site.sh" "$(readlink -f "$top_srcdir")" "$tmp" \
    "$top_builddir/plait" >"$tmp/out" 2>&1
rc=$?
sed 's/^/# /' "$tmp/out"
[ $rc = 0 ] && [ ! -s "$tmp/out" ]
check "the site builds without a warning" $?

missing=
for page in "$top_srcdir"/man/*.[0-9]; do
    name=${page##*/}
    # a heading that every man page has: without it the page is empty
    grep -q 'NAME' "$tmp/site/$name.html" || missing+=" $name"
done
check "man pages in it:${missing:- all}" ${#missing}

missing=
for key in $("$top_builddir/plait" keys | sed 's/ .*//'); do
    grep -q "<code>$key</code>" "$tmp/site/keys.html" || missing+=" $key"
done
check "keys in it:${missing:- all}" ${#missing}

grep -lE '<(script|link|img)[^>]*(src|href)="(https?:)?//' \
    "$tmp"/site/*.html >"$tmp/remote"
[ -s "$tmp/site/index.html" ] && [ ! -s "$tmp/remote" ]
check "no page loads anything from a network" $?
echo "1..$n"
