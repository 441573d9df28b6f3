#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait drill in a Slurm allocation: each run is a step on the allocation's
# nodes, started with srun's own flags or, without the plugin, by plait run.
[ -x "$top_builddir/plait-drill" ] && command -v python3 >/dev/null &&
    command -v setsid >/dev/null ||
    { echo "1..0 # SKIP no plait-train, python3 or setsid"; exit 0; }
. "$top_srcdir/tests/cluster/tap.sh"
export OMP_NUM_THREADS=1
python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2 || exit 99

# Steps are so short that many are needed.
drill()
{
    timeout 400 salloc -Q -N2 --ntasks-per-node=1 "$plait" drill c.yaml \
        --steps 480 --timeout 12 --dir "$work/runs" "$@" \
        -- --device cpu --set train.global_batch=8 >drill.out 2>&1 </dev/null
    status=$?
}
# says FAULT PATTERN: whether the drill's line about FAULT matches
says()
{
    grep -qE "^$1 +$2\$" drill.out || { cat drill.out; return 1; }
}
equal='losses equal, [0-9.]+ s lost \([0-9]+ steps again\), ([0-9]+) of [0-9]+ checkpoints valid'

# The quick tier has one of the faults.
all_tier && only= || only=stop
drill --pp 2 ${only:+--only $only}
check "a job is hurt in its allocation, and all holds" \
    is "0 all holds" "$status $(tail -n 1 drill.out)"
check "it ran on the allocation's ranks" says "the whole run" \
    "480 steps in .* s, 2 ranks, .*pp=2 tp=1, 4 of 4 checkpoints valid"
[ -n "$only" ] || check "a rank of a step is killed in a save" \
    says "a rank killed in a save" "$equal"
check "a rank of a step stops, and is named" says "a rank that stops" \
    "$equal; ended [0-9.]+ s after it stopped, and named"
[ -n "$only" ] || check "another layout" says "another layout" \
    "losses equal within [0-9.e-]+, .*; as 2 ranks, tp=1 cp=1 pp=1 dp=2"
check "no step is left" until_true eval '[ -z "$(squeue -h)" ]'
check "nor a process of one" until_true eval '[ -z "$(steps)" ]'

[ -z "$only" ] || done_testing
rm -rf runs
mv slurm/plugstack.conf plugstack
: >slurm/plugstack.conf
drill --pp 2 --only save
check "without the plugin srun starts plait run" \
    is "0 all holds" "$status $(tail -n 1 drill.out)"
check "with the same outcome" says "a rank killed in a save" "$equal"
mv plugstack slurm/plugstack.conf
done_testing
