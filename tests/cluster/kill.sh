#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# srun, a task, a step daemon or a node's daemon is killed at every stage of a
# step. The next job must be planned, bound and started as usual.
. "$top_srcdir/tests/cluster/tap.sh"

planned=(srun -Q -N4 --ntasks-per-node=2 --gpus-per-node=2 --tp=2 --pp=2)

quiet()
{
    [ -z "$(squeue -h)" ] && [ -z "$(steps)" ]
}

# Whether a planned step runs on all nodes, with the whole contract and RANK 0's
# port free, and nothing is left of the killed step.
next_job()
{
    local out
    until_true quiet || { echo "left: $(squeue -h) $(steps)"; return 1; }
    out=$(timeout 240 "${planned[@]}" bash -c \
        'echo $RANK/$WORLD_SIZE $PLAIT_PP_RANK $CUDA_VISIBLE_DEVICES' 2>&1)
    is "$(for r in 0 1 2 3 4 5 6 7; do echo "$r/8 $((r / 4)) 0,1"; done)" \
        "$(sort <<<"$out")" || return 1
    # no partly written file is left for a later step
    is "" "$(find slurm -path '*cache*' \( -name '*.tmp*' -o -size 0 \) \
        ! -name node.lock -type f)"
}

# kill_srun SIGNAL MILLISECONDS: kill an srun of that age
kill_srun()
{
    "${planned[@]}" sleep 10 >/dev/null 2>&1 &
    sleep "$(printf '0.%03d' $2)"
    kill -"$1" $!
    wait $!
    return 0
}

stages="0 40 100 200"
starts="0 10 40" # of a step daemon
if all_tier; then
    stages="0 20 40 60 80 100 150 200 300" starts="0 5 10 20 40 80"
fi
for ms in $stages; do
    kill_srun KILL $ms
    # Slurm gives up a job whose srun is dead only after InactiveLimit.
    scancel --user="$(id -un)"
done 2>/dev/null
check "srun dead by SIGKILL, at $stages ms" next_job
for ms in $stages; do kill_srun TERM $ms; done 2>/dev/null
check "srun ended by SIGTERM, at $stages ms" next_job

# user_init is the plugin's first call in a step daemon.
kill_stepd()
{
    local tries
    "${planned[@]}" sleep 10 >/dev/null 2>&1 &
    for ((tries = 0; tries < 2000; tries++)); do
        [ -z "$(steps)" ] || break
        sleep 0.002
    done
    sleep "$(printf '0.%03d' $1)"
    kill -KILL $(steps)
    scancel --user="$(id -un)"
    wait $!
    return 0
}
for ms in $starts; do
    rm -rf slurm/cache/*
    kill_stepd $ms
done 2>/dev/null
until_true eval '! sinfo -h -N -o %T | grep -qv idle' ||
    scontrol update NodeName=node[1-4] State=RESUME
check "slurmstepd killed while it starts" next_job

start_step()
{
    rm -f pid.*
    "${planned[@]}" "$@" bash -c \
        'echo $$ >pid.$SLURM_PROCID; exec sleep 600' >/dev/null 2>&1 &
    until_true eval '[ $(cat pid.* | wc -w) = 8 ]' || echo "no start"
}

start_step -K
kill -KILL $(cat pid.5)
check "a task killed: the step ends" until_true eval \
    '! kill -0 $! && [ -z "$(steps)" ]'
check "... and the next one runs" next_job

start_step
kill -KILL $(steps | head -n 1)
scancel --user="$(id -un)"
check "slurmstepd killed while tasks run" next_job
kill -KILL $(living $(cat pid.*)) # whose daemon is gone, so that nobody ends them

# A node's daemon is killed during a step, and restarted.
start_step
kill -KILL $(cat slurm/slurmd.node2.pid)
cluster restart slurm node2
check "a running step outlives its slurmd" kill -0 $(cat pid.0) $(cat pid.2)
scancel --user="$(id -un)"
check "... and the next one runs" next_job

# srun is killed while it waits in the queue and has no plan yet.
timeout 240 salloc -Q -K -N4 --exclusive sleep 600 &
holder=$!
until_true eval '[ "$(squeue -h -t R -o %D)" = 4 ]'
"${planned[@]}" true 2>/dev/null &
until_true eval '[ -n "$(squeue -h -t PD -o %i)" ]'
kill -KILL $!
scancel --user="$(id -un)"
wait $holder 2>/dev/null
check "srun killed in the queue" next_job

# Wait until no job is completing: slurmctld repeats a request that a killed
# daemon has not answered only minutes later.
check "slurmds that all die and come back" eval \
    'until_true quiet && kill -KILL $(cat slurm/slurmd.*.pid) &&
     cluster restart slurm node1 node2 node3 node4 && next_job'
done_testing
