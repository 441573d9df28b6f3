#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each way in which Slurm starts something, with and without the flags.
. "$top_srcdir/tests/cluster/tap.sh" \
    --conf PrologFlags=Contain --conf LaunchParameters=use_interactive_step \
    --conf 'InteractiveStepOptions="--interactive --preserve-env /usr/bin/env"'

ours='^(PLAIT_|SLURM_PLAIT_|RANK=|WORLD_SIZE=|LOCAL_RANK=|MASTER_|GROUP_RANK=)'

# The environment of one task without what differs from run to run.
stable_env()
{
    # one file per task, as lines of two tasks could mix on one pipe
    rm -f "$work"/env.*
    timeout 240 srun -w node1,node2 -n2 --gpus-per-node=2 \
        --output="$work/env.%t" "$@" env
    cat "$work"/env.* |
        grep -vE '_PORT|PID|(JOB|STEP|SLU)_?ID=|PMIX|_TIME|ADDR|_transports=' |
        sort
}
no_flags()
{
    local with without
    with=$(stable_env)
    mv slurm/plugstack.conf slurm/plugstack.off
    : >slurm/plugstack.conf
    without=$(stable_env)
    mv slurm/plugstack.off slurm/plugstack.conf
    diff <(echo "$without") <(echo "$with")
}
check "a job without the flags sees no change" no_flags

cat >script <<'END'
#!/bin/bash
#SBATCH -N4 --ntasks-per-node=2
#SBATCH --tp=2 --pp=2
env >batch.env
srun --output=rank.%t bash -c \
    'echo "$RANK/$WORLD_SIZE $PLAIT_TP_SIZE $PLAIT_PP_SIZE"'
END
check "#SBATCH lines reach the srun inside" batch out script
check "... all ranks" is "$(for i in 0 1 2 3 4 5 6 7; do echo "$i/8 2 2"; done)" \
    "$(sort rank.*)"
check "the batch script is no rank, but marked" is "SLURM_PLAIT_FLAGS=tp,pp" \
    "$(grep -E "$ours" batch.env)"

cat >script <<'END'
#!/bin/bash
#SBATCH -N4 --ntasks-per-node=2 --tp=2 --pp=2
srun -Q --output=first.%t --pp=4 bash -c \
    'echo $PLAIT_TP_SIZE $PLAIT_PP_SIZE $PLAIT_DP_SIZE'
srun -Q --output=second.%t -N2 -n4 --pp=1 bash -c 'echo $PLAIT_NNODES $RANK'
END
check "sruns inside a job take other values" batch out script
check "... per step" is "2 4 1
2 0
2 1
2 2
2 3" "$(sort -u first.*; sort second.*)"

# Slurm lets a requeued job wait for as long as credentials live (20 s).
cat >script <<'END'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2
srun --output=requeue.%t --open-mode=append bash -c \
    'echo "${SLURM_RESTART_COUNT:-0}:$RANK"'
touch requeued.${SLURM_RESTART_COUNT:-0}
[ -n "$SLURM_RESTART_COUNT" ] || scontrol requeue $SLURM_JOB_ID
[ -n "$SLURM_RESTART_COUNT" ] || sleep 600
END
sbatch --requeue -o /dev/null script >/dev/null

check "salloc" timeout 240 salloc -Q -N2 --ntasks-per-node=2 --tp=2 \
    srun --output=salloc.%t bash -c 'echo $RANK $PLAIT_TP_SIZE'
check "... has ranks" is "0 2 1 2 2 2 3 2" "$(sort salloc.* | xargs)"
salloc_shell=$(timeout 240 salloc -Q -N2 --ntasks-per-node=2 --tp=2 env)
check "salloc's own command is no rank, but marked" \
    is "SLURM_PLAIT_FLAGS=tp" "$(grep -E "$ours" <<<"$salloc_shell")"

salloc_shell=$(timeout 240 salloc -Q -N2 --ntasks-per-node=2 --tp=2 \
    </dev/null 2>&1)
check "salloc's interactive step starts" like "$salloc_shell" SLURM_JOB_ID
check "... and is no rank, but marked" is "SLURM_PLAIT_FLAGS=tp" \
    "$(grep -E "$ours" <<<"$salloc_shell")"

# PID of the extern step on this node, which runs a process of its own.
extern_pid()
{
    local pid
    for pid in $(steps); do
        grep -qz 'extern\]' /proc/$pid/cmdline && pgrep -P $pid
    done | head -n 1
}
srun -Q -w node1 -n2 --tp=2 sleep 20 &
if within 5 eval '[ -n "$(extern_pid)" ]'; then
    check "the extern step is no rank" is "" \
        "$(tr '\0' '\n' </proc/"$(extern_pid)"/environ | grep -E "$ours")"
else
    skip "the extern step is no rank" "this Slurm's has no process"
fi
scancel --user="$(id -un)" --name=sleep
wait $! 2>/dev/null

for export in NONE NIL ALL HOME,PATH; do
    check "--export=$export" is "0 1" "$(by_rank -N1 -n2 --tp=2 \
        --export=$export /bin/bash -c 'echo $RANK' | xargs)"
done
sed "s:SRUN:$(command -v srun):" >script <<'END'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2 --export=NONE
SRUN --output=export.%t /bin/bash -c 'echo $RANK'
END
check "sbatch --export=NONE" batch out script
check "... has ranks" is "0 1 2 3" "$(sort export.* | xargs)"

cat >script <<'END'
#!/bin/bash
#SBATCH -N1 -n2 --tp=2 --array=1-3
srun --output=array.$SLURM_ARRAY_TASK_ID.%t bash -c 'echo $RANK $MASTER_PORT'
END
check "array jobs" batch out script
ports=$(cat array.* | cut -d' ' -f2 | sort | uniq -c)
check "... each element its own MASTER_PORT" \
    is "3 2" "$(wc -l <<<"$ports") $(awk '{ print $1 }' <<<"$ports" | sort -u)"

cat >script <<'END'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2
for i in 1 2 3; do
    srun --overlap --output=over.$i.%t bash -c \
        'echo $PLAIT_JOBID $MASTER_PORT; touch at_once.$0
        until [ "$(ls at_once.* | wc -l)" = 3 ]; do sleep 0.1; done' $i &
done
wait
END
check "three steps at once with --overlap" batch out script
check "... have three ports" is 3 \
    "$(cat over.* | sort -u | wc -l)"
cat >script <<'END'
#!/bin/bash
#SBATCH -N1 -n4
for i in a b; do
    srun --exact -n2 --tp=2 --output=exact.$i.%t bash -c \
        'echo $0 $RANK $MASTER_PORT; touch both.$0
        until [ -e both.a ] && [ -e both.b ]; do sleep 0.1; done' $i &
done
wait
END
check "two steps at once with --exact" batch out script
check "... with two ranks each" is "a 0 a 1 b 0 b 1" \
    "$(awk '{ print $1, $2 }' exact.* | sort | xargs)"
check "... and a port for each" is 2 \
    "$(awk '{ print $1, $3 }' exact.* | sort -u | awk '{ print $2 }' |
        sort -u | wc -l)"

cat >script <<'END'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2
srun -n2 -N1 --tp=2 bash -c 'unset ${!PLAIT_@}
    [ $SLURM_LOCALID = 1 ] || srun --overlap -N1 -n1 --tp=1 --pp=1 \
    --output=inner bash -c "echo inner \$PLAIT_WORLD_SIZE \$RANK"'
exit 0
END
check "an srun inside a planned step" batch out script
check "... has its own plan" is "inner 1 0" "$(cat inner)"

# What a rank starts without flags is not planned: an srun in its own job, a job
# that it submits, and that job's sruns.
cat >rank <<'END'
#!/bin/bash
[ $SLURM_LOCALID = 0 ] || exec sleep 0
srun --overlap -N1 -n2 --output=plain.%t env
unset ${!SLURM_CPU_BIND@} # Slurm's own leftovers, which do not fit
sbatch -W -N1 -n1 --output=submitted --wrap 'env; srun -n1 env'
END
chmod +x rank
check "a rank that starts an srun and submits a job" \
    timeout 240 srun -N1 -n2 --tp=2 ./rank
check "... which run" is 4 "$(cat plain.? submitted | grep -c '^SLURM_JOB_ID=')"
check "... without its rank and its secret" is "" \
    "$(cat plain.? submitted | grep -E "$ours")"
check "what only looks like a rank stays" is "7 there" \
    "$(RANK=7 MASTER_ADDR=there timeout 240 srun -n1 \
        bash -c 'echo $RANK $MASTER_ADDR')"

requeued()
{
    until_true test -e requeued.1
    is "0:0 0:1 0:2 0:3 1:0 1:1 1:2 1:3" "$(sort requeue.* | xargs)"
}
check "a requeued job is planned again" requeued

# A node whose slurmd may use only one processor, limited by a cgroup or, if
# cgroups are not writable here, by affinity: its tasks get no other processor.
one=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')
group=/sys/fs/cgroup/cpuset/plait.$$
slurmd=$(cat slurm/slurmd.node1.pid)
until_true eval '[ -z "$(squeue -h)" ]'
if mkdir $group 2>/dev/null; then
    cat ${group%/*}/cpuset.mems >$group/cpuset.mems
    echo "$one" >$group/cpuset.cpus
    echo "$slurmd" >$group/cgroup.procs
else
    group=
    taskset -acp "$one" "$slurmd" >/dev/null
fi
check "a node restricted ${group:+by its cgroup }tells its tasks" \
    is "0:$one:$one 1:$one:$one" "$(by_rank -w node1 -n2 --tp=2 \
        --cpu-bind=none bash -c \
        'echo $RANK:$(taskset -cp $$ | sed "s/.*: *//"):$PLAIT_CPUS' | xargs)"
if [ -n "$group" ]; then
    echo "$slurmd" >${group%/*}/cgroup.procs
    within 5 rmdir $group
fi

check "no step leaves anything behind" until_true \
    eval '[ -z "$(squeue -h)" ] && ! ls slurm/spool.*/plait* 2>/dev/null'
done_testing
