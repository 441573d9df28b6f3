#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docs/first-hour.md as it stands: its commands, one after the other, print what
# the page shows.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
"$top_builddir/plait-train" --version >/dev/null 2>&1 ||
    { echo "1..0 # SKIP plait-train does not start"; exit 0; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
PATH=$(readlink -f "$top_builddir"):$PATH
cp -r "$top_srcdir/docs" "$dir" && chmod -R u+w "$dir"
timeout 900 python3 -B "$top_srcdir/tests/cli/first_hour.py" \
    "$top_srcdir/docs/first-hour.md" "$dir"
