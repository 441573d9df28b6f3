#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-train under a real srun with the plugin: a configuration that
# contradicts the plan is refused, and all tasks end when one does. That layouts
# give the curve of one process is tested by parity.sh.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
train=$top_builddir/plait-train
. "$top_srcdir/tests/cluster/tap.sh" --gpus 4 || exit 99
srun --mpi=list 2>&1 | grep -q pmix ||
    { echo "1..0 # SKIP this Slurm has no PMIx"; exit 0; }

# what the tasks print before they give up
says()
{
    by_rank --mpi=pmix "$@" | grep "^plait-train: "
}

python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2 || exit 99

check "a configuration that contradicts the plan is refused by one line" \
    is "plait-train: parallel.tp is 4, but the job was started with tp 2: \
leave it out of the configuration, or use srun --tp=4" \
    "$(says -N2 --ntasks-per-node=2 --tp=2 "$train" c.yaml \
        --set parallel.tp=4)"
check "tasks that cannot meet are told how" \
    like "$(by_rank -N2 --ntasks-per-node=1 --mpi=none "$train" c.yaml)" \
    "--mpi=pmix"
check "what srun's plan says goes without a word about it in the file" \
    like "$(by_rank --mpi=pmix -N2 --ntasks-per-node=2 --tp=2 --pp=2 \
        "$train" c.yaml --comm mpi --set train.steps=2)" \
    "tp 2, cp 1, ep 1, dp 1, pp 2"

# As on nodes that each name such a device, and as if one did not.
by_mpi="by MPI, as each node has an RDMA device"
over()
{
    by_rank --mpi=pmix -N2 --ntasks-per-node=2 --tp=2 --pp=2 bash -c "$1"'
        exec "$@"' - "$train" c.yaml --set train.steps=2 "${@:2}" >out
    like "$(cat out)" "step 2/2"
}
rdma='export PLAIT_NICS=mlx5_0'
check "MPI is taken where each node has an RDMA device" \
    eval 'over "$rdma" && grep "$by_mpi" out'
check "... and not with --comm socket" \
    eval 'over "$rdma" --comm socket && ! grep "$by_mpi" out'
if cat /sys/class/infiniband/*/ports/*/state 2>/dev/null | grep -q ACTIVE ||
    [ -e /sys/class/cxi/cxi0 ]; then
    skip "... or where a node has none" "this machine has one"
else
    check "... or where a node has none" eval \
        'over "[ \$SLURM_NODEID = 0 ] || $rdma" && ! grep "$by_mpi" out'
fi

check "without MPI the ranks talk over sockets" \
    like "$(by_rank --mpi=none -N2 --ntasks-per-node=2 --tp=2 --pp=2 \
        "$train" c.yaml --set train.steps=2)" "step 2/2"
# If nodes lack the plugin that srun has, Slurm itself does not report it. Once
# this job waits, srun has read its plugins; the one before may still be ending.
scontrol update partitionname=all state=down
timeout 240 srun -Q --mpi=pmix -N2 -n2 --tp=1 "$train" c.yaml >out 2>&1 &
until_true eval '[ -n "$(squeue -h -t PENDING)" ]'
mv slurm/plugstack.conf plugstack
: >slurm/plugstack.conf
scontrol update partitionname=all state=up
wait $!
check "a step on nodes that lack the plugin does not start" \
    like "$?$(cat out)" "^[1-9].*this node lacks Slurm's plait plugin"
mv plugstack slurm/plugstack.conf

# A task that is killed ends the step if srun is told so (-K); a task that finds
# an error always does.
timeout 240 srun -K --mpi=pmix -N2 --ntasks-per-node=2 --tp=2 bash -c \
    'echo $$ >pid.$SLURM_PROCID; exec "$@"' - \
    "$train" c.yaml --set train.steps=1000000 >out 2>&1 &
srun=$!
until_true grep -q "step 1/" out
kill -KILL "$(cat pid.3)"
check "a task that dies ends the others" \
    until_true sh -c "! kill -0 $(cat pid.0) && ! kill -0 $srun"
wait

# As plait-train(1) describes: Slurm's signal ends a job in order; the job
# requeues itself and resumes from its checkpoint.
cat >job.sh <<END
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2 --comment=mine --requeue --open-mode=append
srun --mpi=pmix "$train" c.yaml --set checkpoint.dir=ck --metrics steps \\
    --set lr.schedule=constant \\
    --set train.steps=\$((SLURM_RESTART_COUNT ? \$(wc -l <steps) + 5 : 1000000)) |
    tee train.log
grep -q "^stopped after" train.log && scontrol requeue "\$SLURM_JOB_ID"
exit 0
END
job=$(sbatch --parsable -o job.out job.sh)
until_true grep -q "step 1/" job.out
scancel --signal=USR1 "$job"

# Slurm lets a requeued job wait for as long as credentials live (20 s); what
# follows needs as long. The example on another number of nodes chooses a new
# layout for them. (Other nodes, and fewer: requeue.sh.)
scontrol update nodename="node[1-3]" state=drain reason=test
sed "s/^  steps: .*/  steps: 1000000/" c.yaml >fewer.yaml
# Rounding of two layouts must not grow over as many steps as that makes.
rate="--set lr.schedule=constant --set optim.lr=1e-4"
job3=$(PATH=$(readlink -f "$top_builddir"):$PATH sbatch --parsable -o fewer.out \
    --nodes=1-2 --ntasks-per-node=2 --gpus-per-node=2 --time=60 \
    --tp=auto --pp=auto --model=fewer.yaml \
    "$top_srcdir/examples/requeue.sbatch" fewer.yaml --device cpu \
    $rate --set checkpoint.dir=fewer \
    --set checkpoint.every=20 --metrics fewer.jsonl)
until_true eval '[ "$(wc -l <fewer.jsonl)" -ge 5 ]'
scontrol update nodename="node[1-3]" state=resume
scancel --signal=USR1 "$job3"
until_true grep -q "^stopped after" fewer.out
sed -i "s/1000000/$(($(wc -l <fewer.jsonl) + 40))/" fewer.yaml

array=$(sbatch --parsable -n1 --array=1-2 -o /dev/null --comment=mine \
    --wrap "srun --mpi=pmix '$train' c.yaml \
        --set train.steps=\$((1 + SLURM_ARRAY_TASK_ID))")
until_true eval '[ -z "$(squeue -h -j $array)" ]'
check "the comments of a job array's tasks have their own figures" \
    is "Comment=mine | plait-train: step 2 of 2 \
Comment=mine | plait-train: step 3 of 3" \
    "$(scontrol -o show job "$array" |
        grep -o "Comment=mine | plait-train: step [0-9]* of [0-9]*" |
        sort | xargs)"
echo 'job_comment: false' >quiet.yaml
quiet=$(PLAIT_SITE=$work/quiet.yaml sbatch --parsable -n1 -o /dev/null \
    --comment=mine --wrap "srun --mpi=pmix '$train' c.yaml --set train.steps=2")
until_true eval '[ -z "$(squeue -h -j $quiet)" ]'
check "... unless the site forbids it" is "Comment=mine ExitCode=0:0" \
    "$(scontrol -o show job "$quiet" | grep -o " Comment=.*\| ExitCode=[^ ]*" |
        sed 's/Comment=mine .*/Comment=mine/' | sort | xargs)"

check "a job that Slurm's signal ends goes on when it is requeued" \
    until_true eval '[ -z "$(squeue -h -j $job)" ]'
check "every step was made once" python3 -c '
import json
steps = [json.loads(line)["step"] for line in open("steps")]
assert steps == list(range(1, len(steps) + 1)), steps
'
check "and a second life made the last ones" eval \
    'grep -q "^stopped after" job.out && grep -q "^resumed after" job.out'

check "... and the job's comment has its figures" \
    like "$(scontrol show job "$job")" \
    "Comment=mine \\| plait-train: step [0-9]+ of [0-9]+, loss .* tokens/s, MFU \
.* s a step \\(plan .*\\), 1 restart, [0-9]+ s lost"
check "the example goes on, on two nodes after one" until_true eval \
    '[ -z "$(squeue -h -j $job3)" ] && grep -q "^resumed after" fewer.out &&
        is "2 4" "$(sed -n "s/^\([0-9]*\) ranks: .*/\1/p" fewer.out | xargs)"'
"$train" fewer.yaml --device cpu $rate \
    --metrics one.jsonl >one.out 2>&1
check "... to the losses of one process" python3 -B \
    "$top_srcdir/tests/lib/same_losses.py" one.jsonl fewer.jsonl \
    "$(wc -l <one.jsonl)"

check "plait watch finds its metrics by the job's number" \
    like "$("$plait" watch "$job" </dev/null | head -n 1)" "$PWD/steps"
check "... and says when there is no such job, or none of its metrics" \
    like "$("$plait" watch 99999 2>&1; "$plait" watch "$(sbatch --parsable \
        -o /dev/null --wrap true)" 2>&1)" \
    "no such job.*plait-watch: job [0-9]*: no metrics file"

ln -s /dev/full full
by_rank --mpi=pmix -N2 --ntasks-per-node=2 --tp=2 \
    "$train" c.yaml --metrics full >out
check "an error on one rank ends all of them" \
    like "$(tail -n 1 out)" "exit status 1$"
check "with one line" is 1 "$(grep -c "^plait-train: " out)"
done_testing
