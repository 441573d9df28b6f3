#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A long run that saves every 20 steps: memory, descriptors, threads and files
# do not grow. SOAK_STEPS=10000 is the long run of make check-soak, which saves
# to SOAK_DIR/ck if that is set.
set -u
train=$top_builddir/plait-train
steps=${SOAK_STEPS:-300}
export OMP_NUM_THREADS=1
# Freed memory must be returned soon, or it would count as growth.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=1
. "$top_srcdir/tests/lib/until.sh"
. "$top_srcdir/tests/lib/ok.sh"
dir=$(mktemp -d) || exit 1
# On a slow disk, syncing thirty saves would take minutes.
saves=${SOAK_DIR:-$(mktemp -d /dev/shm/plait.XXXXXX)} || exit 1
pid=
trap '[ -z "$pid" ] || kill -9 $(living $(cat "$dir"/pid.*)) "$pid" 2>/dev/null
    rm -rf "$dir" "$saves/ck"
    rmdir "$saves" 2>/dev/null' EXIT
shown=$dir/out
unset "${!SLURM_@}" "${!PLAIT_RANK@}" 2>/dev/null
[ -x "$train" ] && [ -d /proc/self/fd ] &&
    python3 -B "$top_srcdir/tests/lib/small_model.py" "$dir" gpt2 ||
    { echo "1..0 # SKIP needs plait-train, python3 and /proc"; exit 0; }

"$top_builddir/plait" run --np 2 -- bash -c \
    'echo $$ >"$0/pid.$PLAIT_RANK"; exec "$@"' "$dir" "$train" \
    "$dir/c.yaml" --device cpu --metrics "$dir/m" --set train.steps=1000000 \
    --set checkpoint.dir="$saves/ck" \
    --set checkpoint.every=20 --set checkpoint.keep=2 >"$dir/out" 2>&1 </dev/null &
pid=$!
until_true eval '[ -s "$dir/m" ] || ! kill -0 $pid'
ok "a run of $steps steps with a save every 20 goes on" \
    python3 -B "$top_srcdir/tests/lib/soak.py" sample "$dir" "$steps" "$saves"
kill -USR1 "$(cat "$dir/pid.0")"
ok "and ends in order" eval 'ended && [ "$status" = 0 ] &&
    grep -q "^stopped after step" "$dir/out"'
for what in memory descriptors threads files; do
    ok "its $what stay what they were" \
        python3 -B "$top_srcdir/tests/lib/soak.py" flat "$dir" $what
    sed 's/^/# /' "$dir/check"
done
ok "no save failed" eval '! grep -q "could not be saved" "$dir/out"'
echo "1..$n"
