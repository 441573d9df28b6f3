#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plugin is taken away as docs/admin.md says: from submit hosts first. No
# new job has flags then, the queued ones are listed by the command that stands
# there, and they get their ranks.
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2 --gpus 2

cat >script <<'END'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2
srun -Q --output=script.%t bash -c 'echo "${RANK:-none}"'
END
scontrol update partitionname=all state=down
flags=$(sbatch --parsable -o script.out script)
none=$(sbatch --parsable -o none.out -N1 --wrap 'srun -Q hostname')
wrapped=$(sbatch --parsable -o wrapped.out --tp=2 -N1 -n2 \
    --wrap 'srun -Q --output=wrapped.%t bash -c "echo \${RANK:-none}"')

# A submit host that lacks the line.
sed 's:^PlugStackConfig=.*:PlugStackConfig=/dev/null:' slurm/slurm.conf \
    >slurm/bare.conf
bare() { SLURM_CONF=$PWD/slurm/bare.conf "$@"; }
not_known()
{
    local out
    out=$(bare "$@" 2>&1) && return 1
    like "$out" 'unrecognized option'
}
check "a submit host without the plugin refuses flags" \
    not_known sbatch --tp=2 -N1 --wrap true
check "... in a script's lines too" not_known sbatch script
check "... and srun's" not_known srun --tp=2 true
check "... and takes jobs without them" \
    bare sbatch -o bare.out -N1 --wrap 'srun -Q hostname'

check "plait usage lists the jobs with flags, and no other" \
    is "$flags $wrapped" "$("$plait" usage --queued | awk 'NR > 1 { print $1 }' |
        sort -n | xargs)"

scontrol update partitionname=all state=up
until_true eval '[ -z "$(squeue -h)" ]'
check "jobs that were queued with flags have their ranks" \
    is "0 1 2 3 | 0 1" "$(cat script.? | sort | xargs) | $(cat wrapped.? |
        sort | xargs)"
check "... the others run too" grep -q . none.out
scontrol -o show job "$none" | grep -q 'JobState=COMPLETED'
check "... to their end" is 0 $?
done_testing
