#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# examples/requeue.sbatch goes on where Slurm gives its job other nodes, or
# fewer, and plait probe measures the links of an allocation. On more nodes the
# example goes on in train.sh.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
train=$top_builddir/plait-train
. "$top_srcdir/tests/cluster/tap.sh" --gpus 4 || exit 99
srun --mpi=list 2>&1 | grep -q pmix ||
    { echo "1..0 # SKIP this Slurm has no PMIx"; exit 0; }
python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2 || exit 99

# goes_on_for_40 NAME JOB: end the job's first life; its second has 40 steps.
# Slurm lets a requeued job wait for as long as credentials live (20 s).
goes_on_for_40()
{
    scancel --signal=USR1 "$2"
    until_true grep -q "^stopped after" "$1.out"
    sed -i "s/1000000/$(($(wc -l <"$1.jsonl") + 40))/" "$1.yaml"
}

# Rounding of two layouts must not grow over as many steps as a job makes until
# it is stopped.
rate="--set lr.schedule=constant --set optim.lr=1e-4"

# The example on any number of nodes, the second time on other nodes.
sed "s/^  steps: .*/  steps: 1000000/" c.yaml >slices.yaml
scontrol update nodename="node[3-4]" state=drain reason=test
job2=$(PATH=$(readlink -f "$top_builddir"):$PATH sbatch --parsable -o slices.out \
    --nodes=2-4 --ntasks-per-node=1 --gpus-per-node=1 --time=60 \
    "$top_srcdir/examples/requeue.sbatch" slices.yaml --device cpu \
    $rate --set checkpoint.dir=slices \
    --set checkpoint.every=20 --metrics slices.jsonl)
until_true eval '[ "$(wc -l <slices.jsonl)" -ge 5 ]'
first=$(squeue -h -j "$job2" -o %N)
scontrol update nodename="node[3-4]" state=resume
scontrol update nodename="$first" state=drain reason=test
goes_on_for_40 slices "$job2"
check "the example goes on, on other nodes" until_true eval \
    '[ -z "$(squeue -h -j $job2)" ] && grep -q "^resumed after" slices.out &&
        is 4 "$( (scontrol show hostnames "$first"
            scontrol show job "$job2" | sed -n "s/^ *NodeList=//p" |
                xargs scontrol show hostnames) | sort -u | wc -l)"'
"$train" slices.yaml --device cpu $rate \
    --metrics one.jsonl >one.out 2>&1
check "... to the losses of one process" python3 -B \
    "$top_srcdir/tests/lib/same_losses.py" one.jsonl slices.jsonl \
    "$(wc -l <one.jsonl)"
scontrol update nodename="$first" state=resume

# On fewer nodes Slurm keeps the first run's number of tasks.
sed "s/^  steps: .*/  steps: 1000000/" c.yaml >lost.yaml
scontrol update nodename="node[1-2]" state=drain reason=test
job4=$(PATH=$(readlink -f "$top_builddir"):$PATH sbatch --parsable -o lost.out \
    --nodes=1-2 --ntasks-per-node=2 --gpus-per-node=2 --time=60 \
    --tp=auto --pp=auto --model=lost.yaml \
    "$top_srcdir/examples/requeue.sbatch" lost.yaml --device cpu \
    $rate --set checkpoint.dir=lost \
    --set checkpoint.every=20 --metrics lost.jsonl)
until_true eval '[ "$(wc -l <lost.jsonl)" -ge 5 ]'
scontrol update nodename=node4 state=drain reason=test
goes_on_for_40 lost "$job4"
check "the example goes on, on one node after two" until_true eval \
    '[ -z "$(squeue -h -j $job4)" ] && grep -q "^resumed after" lost.out &&
        is "4 2" "$(sed -n "s/^\([0-9]*\) ranks: .*/\1/p" lost.out | xargs)"'
scontrol update nodename="node[1-2],node4" state=resume
"$train" lost.yaml --device cpu $rate \
    --metrics one.jsonl >one.out 2>&1
check "... to the losses of one process" python3 -B \
    "$top_srcdir/tests/lib/same_losses.py" one.jsonl lost.jsonl \
    "$(wc -l <one.jsonl)"

# On a busy machine the times may not grow with the messages' size; then the
# probe says so and writes nothing (cli/probe.sh tests its figures with known
# times).
scontrol show topology >fabric
probed()
{
    timeout 240 srun --mpi=pmix -N4 --ntasks-per-node=2 --tp=2 "$plait" probe \
        --device cpu --fabric fabric --max-bytes 16777216 --repeat 3 \
        --out site.yaml >probe.out 2>&1 && return
    cat probe.out
    [ ! -e site.yaml ] && grep -q 'the times do not grow with the messages' probe.out
}
check "plait probe measures the links, or says that it cannot" probed
if [ -e site.yaml ]; then
    check "... of all nodes" grep -q "8 ranks on 4 nodes, MPI" site.yaml
    check "... and the planner reads them" "$plait" plan --tp=2 \
        --nodes="node[1-4]" --tasks-per-node=2 --fabric fabric --site site.yaml
else
    skip "... of all nodes" "$(tail -n 1 probe.out)"
    skip "... and the planner reads them" "$(tail -n 1 probe.out)"
fi
done_testing
