#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Where RANK and SLURM_PROCID differ srun says so, once a step, unless nobody
# wants to know; the host file of `plait plan` makes both equal in the planned
# placement. A step's flags stand beside its job's.
. "$top_srcdir/tests/cluster/tap.sh"

line='\(PLAIT_\)\?RANK is not SLURM_PROCID in 4 of 8 tasks'
# said COUNT COMMAND...: how often the line comes, in all that COMMAND prints
said()
{
    local count=$1
    shift
    timeout 240 "$@" >out 2>&1 || { cat out; return 1; }
    is "$count" "$(grep -c "plait: $line" out)"
}
step="-N4 --ntasks-per-node=2 --tp=2 --pp=2"
# shellcheck disable=SC2086 # words are meant
{
    check "srun says that ranks are other numbers" said 1 srun $step true
    check "... and who reads which, and what to do" like "$(cat out)" \
        'Megatron-LM.* read RANK; JAX.* read SLURM_PROCID.*--placement=linear'
    check "... and not of how tasks are dealt" is 0 \
        "$(grep -c distribution=block out)"
    check "... but where they are dealt out in turn" \
        said 1 srun $step --distribution=cyclic true
    check "... what to do" like "$(cat out)" \
        'unless --distribution=block --placement=linear makes both equal'
    check "... which it does" said 0 \
        srun $step --distribution=block --placement=linear true
    check "... also without RANK" said 1 srun $step --rendezvous=none true
    check "... as PLAIT_RANK" like "$(cat out)" 'plait: PLAIT_RANK is not'
    check "not where both are equal" said 0 srun $step --placement=linear true
    check "not in a step without a plan" said 0 srun -N4 -n8 --ntasks-per-node=2 true
    check "not with PLAIT_QUIET" said 0 env PLAIT_QUIET=1 srun $step true
    check "but with PLAIT_QUIET=0" said 1 env PLAIT_QUIET=0 srun $step true
    check "not with srun --quiet" said 0 srun -Q $step true
    printf '#!/bin/sh\n' >plait-train
    chmod 755 plait-train
    check "not for plait-train" said 0 srun $step ./plait-train job.yaml
    check "not where a tool starts plait-train" \
        said 0 srun $step env A=b ./plait-train job.yaml
    check "once for each step of a job" batch out.steps <(
        printf '#!/bin/sh\n#SBATCH %s\n' "$step"
        printf 'srun true\nsrun true\nsrun -n1 -N1 true\n')
    check "... of those that have a plan" \
        is 2 "$(grep -c "plait: $line" out.steps)"
    check "plait run says it in a step without the plugin's plan" \
        said 1 srun -N4 -n8 --ntasks-per-node=2 "$plait" run --tp=2 --pp=2 true
    check "... and not with PLAIT_QUIET" said 0 env PLAIT_QUIET=1 \
        srun -N4 -n8 --ntasks-per-node=2 "$plait" run --tp=2 --pp=2 true
    check "... nor for plait-train" said 0 srun -N4 -n8 --ntasks-per-node=2 \
        "$plait" run --tp=2 --pp=2 ./plait-train
}

# The table names both numbers of each node.
shown()
{
    # shellcheck disable=SC2086
    srun -Q $step --show-plan "$@" true 2>&1 |
        awk '$1 ~ /^[0-9]/ || $1 == "ranks" { print $1, $2, $4 }'
}
check "--show-plan names the task ids" is \
    "ranks node SLURM_PROCID 0-1 node1 0-1 2-3 node3 4-5 4-5 node2 2-3 6-7 \
node4 6-7" "$(shown | xargs)"
check "... where they are dealt out in turn" is "0-1 node1 0,4" \
    "$(shown --distribution=cyclic | sed -n 2p)"
check "... with a sign where more are left out" like \
    "$(salloc -Q -N4 srun -Q -n32 -O --tp=4 --show-plan \
        --distribution=cyclic true 2>&1)" 'node1 .* 0,4,8,12,16,20,24,\.\.\. '
check "... and not where they are the ranks" is "" \
    "$(shown --placement=linear | grep PROCID)"

# The host file for trainers that read SLURM_PROCID: the lines of docs/migrate.md.
both()
{
    # shellcheck disable=SC2086
    by_rank $step "$@" bash -c 'echo $RANK $SLURM_PROCID $SLURMD_NODENAME' |
        xargs
}
equal()
{
    cat >job <<'END'
#!/bin/bash
#SBATCH -N4 --ntasks-per-node=2 --tp=2 --pp=2
END
    awk '/^    scontrol show topology/, /--placement=linear/' \
        "$top_srcdir/docs/migrate.md" | sed 's/^    //
        s/python train.py/bash -c "echo \\$RANK \\$SLURM_PROCID \\$SLURMD_NODENAME"/' \
        >>job
    PATH=$top_builddir:$PATH batch out.host job || return
    ! grep -q "plait: $line" out.host || return
    is "$(sed 's/^\([0-9]*\) [0-9]* /\1 \1 /' <<<"$planned" | xargs)" \
        "$(grep -E '^[0-9]+ [0-9]+ node' out.host | sort -n | xargs)"
}
# pasted ORDER: the line that plan prints, in a job without flags
pasted()
{
    printf '#!/bin/sh\necho $RANK $SLURM_PROCID $SLURMD_NODENAME\n' >task
    chmod 755 task
    cat >job <<END
#!/bin/bash
#SBATCH -N4 --ntasks-per-node=2
scontrol show topology >fabric
eval "\$(plait plan --tp=2 --pp=2 --rank-order=$1 --nodes "\$SLURM_JOB_NODELIST" \\
    --tasks-per-node 2 --fabric fabric --hostfile hosts |
    sed -n 's/COMMAND\$/.\/task/; s/^  SLURM_HOSTFILE/SLURM_HOSTFILE/p')"
END
    PATH=$top_builddir:$PATH batch out.pasted job || return
    ! grep -q "plait: $line" out.pasted || return
    is "$(both --rank-order="$1" | sed 's/\([0-9]\) [0-9] node/\1 \1 node/g')" \
        "$(grep -E '^[0-9]+ [0-9]+ node' out.pasted | sort -n | xargs)"
}
# shellcheck disable=SC2086
planned=$(by_rank $step bash -c 'echo $RANK $SLURM_PROCID $SLURMD_NODENAME')
check "the ranks of a step are elsewhere than Slurm's tasks" \
    like "$planned" '2 4 node3'
check "with the host file both are equal, where the plan has them" equal
for order in tp-cp-ep-dp-pp tp-cp-ep-pp-dp; do
    check "... by the line that plan prints, in $order" pasted $order
done

# A step's flags beside its job's.
cat >job <<'END'
#!/bin/bash
#SBATCH -N4 --ntasks-per-node=2 --tp=2 --pp=2
srun --overlap -N1 -n2 --dp=2 true
srun --overlap -N2 -n4 --tp=2 --dp=2 true
srun --overlap -N2 -n4 --tp=2 --dp=2 --pp=1 sh -c \
    'echo "$PLAIT_TP_SIZE $PLAIT_DP_SIZE $PLAIT_PP_SIZE" >sizes'
srun --overlap --dp=2 sh -c \
    'echo "$PLAIT_TP_SIZE $PLAIT_DP_SIZE $PLAIT_PP_SIZE" >all'
END
sbatch -W -o out.beside job >/dev/null 2>&1
check "a size that is the job's is said to be" like "$(cat out.beside)" \
    '4 tasks.* \(--pp=2 is the job.s: --pp=1 takes it back\)'
check "... both of them" like "$(cat out.beside)" \
    '2 tasks.* \(--tp=2 is the job.s: --tp=1 takes it back; --pp=2 is the job.s'
check "... and --pp=1 takes it back" is "2 2 1" "$(cat sizes)"
check "a step's flag leaves the job's others" is "2 2 2" "$(cat all)"
check "--rank-order without axes of size 1" is "pp-dp-tp-cp-ep" \
    "$(srun -Q -N1 -n2 --tp=2 --rank-order=pp-dp-tp sh -c 'echo $PLAIT_ORDER' |
        sort -u)"
done_testing
