#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# srun --async (Slurm 26.05) ends before its step starts, which the job's step
# manager launches: with flags it is refused, and jobs with flags can still have
# such helpers.
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2 --conf PrologFlags=Contain \
    --conf SlurmctldParameters=enable_stepmgr
srun --help | grep -q -e --async ||
    { echo "1..0 # SKIP this Slurm's srun has no --async"; exit 0; }
cached

# A step that is queued ends with its job: so the job waits for its file.
cat >until_there <<'END'
for i in $(seq 2400); do
    [ ! -s "$1" ] || exit 0
    sleep 0.1
done
exit 1
END
line='plait: srun --async ends before its step can be planned'
check "a planned step is refused" refused "$line" \
    salloc -Q -N2 --ntasks-per-node=2 srun --async --tp=2 --output=flags.%t true
cat >script <<'END'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2
srun --async --output=job.%t true
echo "status $?"
srun --async -N1 -n1 --output=helper \
    bash -c 'echo "rank ${RANK:-none} ${SLURM_PLAIT_PLAN-}"'
bash until_there helper
srun --output=rank.%t bash -c 'echo $RANK $PLAIT_TP_SIZE'
END
check "a job with flags" batch out script
check "... refuses one that its flags fit" is "1 status 1" \
    "$(grep -c "$line" out) $(grep ^status out)"
check "... runs one that they do not fit" is "rank none none" "$(cat helper)"
check "... and says so" like "$(cat out)" \
    'does not fit this step of 1 task, which starts without one'
check "... and plans the others" is "0 2 1 2 2 2 3 2" "$(sort rank.* | xargs)"
check "nothing of what was refused has started" is "" \
    "$(ls flags.* job.* 2>/dev/null)"
check "a job without flags" timeout 240 salloc -Q -N2 --ntasks-per-node=1 bash -c \
    'srun --async --output=plain.%t bash -c "echo plain \${RANK-}" &&
        bash until_there plain.0 && bash until_there plain.1'
check "... is left alone" is "plain plain" "$(cat plain.? | xargs)"
check "the nodes are not drained" is idle "$(until_true \
    eval '[ -z "$(squeue -h)" ]'; sinfo -h -o %T | sort -u)"
done_testing
