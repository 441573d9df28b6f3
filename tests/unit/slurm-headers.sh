#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plugin compiles with the headers of each release of Slurm that
# SLURM_HEADERS names: folders with slurm/spank.h in them, of releases that are
# not installed here. docs/testing.md says how to make them.
[ -n "${SLURM_HEADERS:-}" ] ||
    { echo "1..0 # SKIP SLURM_HEADERS names no folders"; exit 0; }
n=0 failed=0
object=$(mktemp) || exit 99
trap 'rm -f "$object"' EXIT
for folder in $SLURM_HEADERS; do
    number=$(sed -n 's/^#define SLURM_VERSION_NUMBER //p' \
        "$folder/slurm/slurm_version.h")
    for file in "$top_srcdir"/spank_plugin/*.c; do
        n=$((n + 1))
        name="$(basename "$file") with ${number:-what is in $folder}"
        if [ -n "$number" ] && ${CC:-cc} -std=gnu11 -Wall -Wextra -Werror -O1 \
            -c -o "$object" -DHAVE_CONFIG_H -I"$top_builddir" -I"$top_srcdir" \
            -I"$top_srcdir/topology/api" -I"$folder" \
            $(pkg-config --cflags hwloc) "$file"; then
            echo "ok $n - $name"
        else
            echo "not ok $n - $name"
            failed=1
        fi
    done
done
echo "1..$n"
exit $failed
