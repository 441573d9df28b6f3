#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait drill: a job into which faults are injected gets the same result, and a
# report says so; if the result differs, the drill fails.
set -u
drill=$top_builddir/plait-drill
export OMP_NUM_THREADS=1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out
unset "${!SLURM_@}" "${!PLAIT_RANK@}" 2>/dev/null
python3 -B "$top_srcdir/tests/lib/small_model.py" "$dir" gpt2 ||
    { echo "1..0 # SKIP needs python3"; exit 0; }
command -v setsid >/dev/null || { echo "1..0 # SKIP no setsid"; exit 0; }

# A drill of two ranks. Its steps are so short that many are needed.
run() {
    timeout -k 9 400 "$@" >"$dir/out" 2>&1 </dev/null
    status=$?
}
hurt() {
    run "$drill" "$dir/c.yaml" --np 2 --steps 160 --dir "$dir/runs" "$@" \
        -- --device cpu --set train.global_batch=8
}
says() { # FAULT PATTERN
    grep -qE "^$1 +$2\$" "$dir/out"
}
equal='losses equal, [0-9.]+ s lost \([0-9]+ steps again\), ([0-9]+) of [0-9]+ checkpoints valid'

# A job that keeps a second set of checkpoints, and all logs: the drill may
# neither go on from the one nor write into the others.
run "$top_builddir/plait-train" "$dir/c.yaml" --device cpu \
    --set train.steps=4 --set train.global_batch=8 \
    --set checkpoint.dir="$dir/job" --set checkpoint.every=2
ok "a job of its own has been trained" test $status = 0 -a -e "$dir/job/latest"
cp "$dir/c.yaml" "$dir/full.yaml"
cat >>"$dir/full.yaml" <<END
checkpoint: {dir: $dir/other, fallback: $dir/job}
log: {tensorboard: $dir/job/events, histograms: 4, profile: $dir/job/profile,
  prometheus: $dir/job/prometheus}
END
find "$dir/job" | sort >"$dir/before"
run "$drill" "$dir/full.yaml" --np 2 --steps 8 --dir "$dir/runs" --only link \
    -- --device cpu --set train.global_batch=8
ok "a drill of it holds" test $status = 0 -a \
    "$(tail -n 1 "$dir/out")" = "all holds"
find "$dir/job" | sort >"$dir/after"
ok "and leaves what it has saved and logged alone" \
    cmp "$dir/before" "$dir/after"
rm -rf "$dir/runs"

hurt --tp 2 --only save,stop,layout,link --timeout 12
ok "a job is hurt, and all holds" test $status = 0 -a \
    "$(tail -n 1 "$dir/out")" = "all holds"
ok "the whole run" says "the whole run" \
    "160 steps in .* s, 2 ranks, .*tp=2, 4 of 4 checkpoints valid"
ok "a rank killed in a save" says "a rank killed in a save" "$equal"
ok "a rank that stops" says "a rank that stops" \
    "$equal; ended [0-9.]+ s after it stopped, and named"
ok "another layout" says "another layout" "losses equal within [0-9.e-]+, .*; \
as 2 ranks, tp=1 cp=1 pp=1 dp=2"
ok "a link is left alone" says "a link that is cut" "left out: give --cut .*"
rm -rf "$dir/runs"

hurt --only layout --other "--tp=2" --tolerance 0
ok "what differs is no success" test $status = 1
ok "and said" says "another layout" "FAILED: losses differ by [0-9.e-]+"
ok "and kept" test -e "$dir/runs/layout/log"
rm -rf "$dir/runs"

if unshare -n ip link set lo up 2>/dev/null; then
    run unshare -n bash -c 'ip link set lo up && exec "$@"' sh "$drill" \
        "$dir/c.yaml" --np 2 --steps 160 --dir "$dir/runs" --only link \
        --timeout 12 --cut "ip link set lo down" --mend "ip link set lo up" \
        -- --device cpu --set train.global_batch=8
    ok "a link is cut and mended" test $status = 0
    ok "and the run is the same" says "a link that is cut" \
        "$equal; ended [0-9.]+ s after it was cut"
    rm -rf "$dir/runs"
else
    n=$((n + 1))
    echo "ok $n # SKIP a link may not be cut here"
fi

hurt --only save --cut true
ok "half of what it takes to cut a link is wrong usage" test $status = 2
run "$drill" "$dir/c.yaml"
ok "so is no place to run" test $status = 2
ok "in one line" test "$(wc -l <"$dir/out")" = 1
run "$drill" "$dir/c.yaml" --np 2 --dir "$dir/runs" -- --set model.layers=no
ok "a job that does not run: status 1" test $status = 1
ok "and its own line" grep -q "the whole run.*FAILED: plait-train: .*layers" \
    "$dir/out"
hurt --only save
ok "the runs of another drill are not gone on with" eval \
    'test $status = 2 && grep -q "has the runs of another drill" "$dir/out"'
echo "1..$n"
