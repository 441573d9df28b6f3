#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Run the FUZZERS (tests/fuzz/fuzz_NAME ...), each starting from its corpus, all
# within FUZZ_SECONDS (60) on this machine's processors; print TAP with the
# executions of each. Inputs that break one are kept in FUZZ_FOUND
# (./fuzz-found).
set -u
seconds=${FUZZ_SECONDS:-60}
found=${FUZZ_FOUND:-fuzz-found}
corpora=$top_srcdir/tests/fuzz/corpus
names=$(sed 's:tests/fuzz/fuzz_::g' <<<"${FUZZERS-}")
[ -n "$names" ] || { echo "1..0 # SKIP configured without --enable-fuzz"; exit; }
# Inputs and corpora are written all the time; a disk would slow fuzzing down.
base=/tmp
[ -d /dev/shm ] && [ -w /dev/shm ] && base=/dev/shm
work=$(mktemp -d $base/plait-fuzz.XXXXXX) || exit 99
trap 'rm -rf "$work"' EXIT
mkdir -p "$found"

# What a reader claims at once is less than this, whatever number it reads. A
# rank's copy may have any size: there more is refused, as where memory is short.
limit_mb=64
fuzz()
{
    local options=$ASAN_OPTIONS limit=$limit_mb
    if [ "$1" = peers ]; then
        options+=:allocator_may_return_null=1:max_allocation_size_mb=$limit
    fi
    mkdir "$work/$1"
    ASAN_OPTIONS=$options \
    "$top_builddir/tests/fuzz/fuzz_$1" -max_total_time="$each" -max_len=512 \
        -reload=0 -entropic=0 -timeout=10 -rss_limit_mb=1024 \
        -malloc_limit_mb=$limit \
        -print_final_stats=1 \
        -artifact_prefix="$found/$1-" "$work/$1" "$corpora/$1" \
        >"$work/$1.log" 2>&1
    echo $? >"$work/$1.rc"
}
export -f fuzz
export limit_mb work found corpora top_builddir TMPDIR=$work
each=$((seconds * $(nproc) / $(wc -w <<<"$names")))
export each=$((each > 0 ? each : 1))
# The data that AddressSanitizer keeps for its reports would halve the
# executions.
export ASAN_OPTIONS=malloc_context_size=0:quarantine_size_mb=1
ASAN_OPTIONS+=:max_malloc_fill_size=64
xargs -n 1 -P "$(nproc)" bash -c 'fuzz "$0"' <<<"$names"

n=0 total=0 failed=0
for name in $names; do
    n=$((n + 1))
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log")
    total=$((total + ${runs:-0}))
    if [ "$(cat "$work/$name.rc")" = 0 ]; then
        echo "ok $n - $name: $runs executions"
    else
        echo "not ok $n - $name"
        grep -E 'ERROR|SUMMARY|No such|^ +#[0-9] .* in ' "$work/$name.log" |
            sed 's/^/# /'
        failed=1
    fi
done
echo "# $total executions in all"
echo "1..$n"
exit $failed
