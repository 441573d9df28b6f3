#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Requests that cannot work are refused by srun, sbatch and salloc, in one line,
# before anything is queued; those that srun lets pass are refused on the node.
. "$top_srcdir/tests/cluster/tap.sh"

# everywhere DESCRIPTION PATTERN FLAGS...: srun, sbatch and salloc refuse FLAGS.
# The three have the same code: the quick tier asks the others for --pp=3 alone.
everywhere()
{
    local what=$1 pattern=$2
    shift 2
    check "srun $what" refused "$pattern" \
        srun -N4 --ntasks-per-node=2 "$@" true
    all_tier || [ "$what" = --pp=3 ] || return
    check "sbatch $what" refused "$pattern" \
        sbatch -N4 --ntasks-per-node=2 "$@" --wrap true
    check "salloc $what" refused "$pattern" \
        salloc -N4 --ntasks-per-node=2 "$@" true
}

# Slurm calls any of the plugin's symbols whose name it knows, and loads the
# plugin into programs that lack some of Slurm's symbols.
check "the plugin exports Slurm's names alone" is "" "$(nm -D --defined-only \
    "$plugin" | awk '{ print $3 }' |
    grep -vE '^(plugin_(name|type|version)|spank_plugin_version|slurm_spank_)')"
check "the plugin binds lazily" is "" \
    "$(readelf -d "$plugin" | grep -E 'BIND_NOW|FLAGS_1.*NOW')"

size='plait: --[tcedp]p=.* must be a whole number from 1 to'
for bad in 0 -1 abc 4x 99999999999 '' 1.5 ' 2' 0x2; do
    everywhere "--tp='$bad'" "$size" "--tp=$bad"
done
for axis in cp ep dp pp; do
    everywhere "--$axis=x" "$size" --$axis=x
done
everywhere "--pp=3" '8 tasks are not divisible by --pp=3; .* would fit' --pp=3
everywhere "--tp=2 --pp=2 --dp=4" 'would fit' --tp=2 --pp=2 --cp=1 --dp=4
everywhere "--tp=4 over nodes of 2" \
    "a node's 2 tasks are not divisible by --tp=4; --tp=2 would fit" --tp=4
everywhere "--ep=3" 'ep' --tp=2 --ep=3
for order in pp-dp-cp-ep-tp cp-tp-ep-dp-pp; do
    everywhere "--rank-order=$order over nodes" 'begin the order with tp' \
        --tp=2 --cp=2 --rank-order=$order
done
everywhere "bad --rank-order" 'must have each of tp, cp, ep, dp and pp once' \
    --rank-order=tp-dp-tp
everywhere "--rank-order without an axis that is there" \
    'leaves out pp, whose size is 2' --pp=2 --rank-order=tp-dp
everywhere "two sizes without a model" 'unless --model=FILE says' \
    --tp=auto --pp=auto
everywhere "a model that is not there" 'nowhere.yaml: No such file' \
    --tp=auto --model=nowhere.yaml
everywhere "bad --placement" 'must be topology or linear' --placement=best
everywhere "bad --pin" 'must be closest or none' --pin=all
everywhere "bad --rendezvous" 'must be torch or none' --rendezvous=mpi
everywhere "--gpus-per-task" 'use --gpus-per-node' --tp=2 --gpus-per-task=1
check "srun -n8 without --ntasks-per-node" refused '8 tasks are not divisible' \
    srun -n8 --tp=3 true
check "#SBATCH lines" refused '8 tasks are not divisible' sbatch <(
    printf '#!/bin/sh\n#SBATCH -n8\n#SBATCH --tp=3\ntrue\n')
for two in '-n1 --tp=1 : -n1' '-n1 : -n1 --tp=1'; do
    check "a het srun $two" refused heterogeneous \
        srun ${two/ :/ true :} true
    check "a het salloc $two" refused heterogeneous salloc $two true
    check "a het sbatch $two" refused heterogeneous sbatch $two --wrap true
done
check "a het batch script" refused heterogeneous sbatch <(
    printf '#!/bin/sh\n#SBATCH -n1 --tp=1\n#SBATCH hetjob\n#SBATCH -n1\n')
check "nothing was ever queued" \
    is "" "$(scontrol -o show jobs 2>&1 | grep JobId=)"
check "srun -n8 with tp last" refused 'spreads tp groups .* node[1-4] among' \
    srun -n8 -N4 --tp=2 --pp=2 --rank-order=pp-dp-cp-ep-tp true
warned()
{
    local out
    out=$(timeout 240 srun -N4 --ntasks-per-node=2 --tp=2 --placement=linear \
        --rank-order=pp-dp-cp-ep-tp bash -c 'echo ran' 2>&1) || return 1
    is "1 8" "$(grep -c 'warning: --rank-order=.* spreads tp groups' \
        <<<"$out") $(grep -c '^ran' <<<"$out")"
}
check "... with a warning under --placement=linear" warned
if command -v python3 >/dev/null; then
    check "what srun and sbatch advise can be pasted" \
        python3 -B "$top_srcdir/tests/cli/advice.py" "$top_builddir" \
        "${PLAIT_TEST_SEED:-52}" "${PLAIT_TEST_ADVICE:-12}" slurm
else
    skip "what srun and sbatch advise can be pasted" "no python3"
fi
# Nodes have more CPUs in slurm.conf than in truth: beside the jobs of the last
# test, tasks may be dealt CPUs that do not exist.
until_true eval '[ -z "$(squeue -h)" ]'
check "another axis before tp within a node" timeout 240 srun -N2 -n4 \
    --ntasks-per-node=2 --tp=2 --rank-order=pp-tp-cp-ep-dp true
# A mistake is reported in one line, whichever node finds it, and no task
# starts.
one_line()
{
    local pattern=$1 out rc
    shift
    rm -f started.*
    out=$(timeout 240 "$@" bash -c 'touch started.$SLURM_PROCID' 2>&1)
    rc=$?
    is "1 1" "$rc $(wc -l <<<"$out")" && like "$out" "^srun: error: $pattern" &&
        is "" "$(ls started.* 2>/dev/null)" || { echo "$out"; return 1; }
}
check "what srun's nodes tell is one line" \
    one_line 'plait: .* not divisible by --tp=2' srun -Q -N4 -n6 --tp=2
check "tasks that Slurm deals unevenly, and what deals them evenly" \
    one_line 'plait: .*--tp=2; --ntasks-per-node=2 would fit$' \
    srun -Q -N2 -n4 --tp=2
for n in 1 2; do
    check "fewer GPUs than tasks, on $((n * 2)) nodes" \
        one_line 'plait: node[1-4]: .*--gpus-per-node=2,.*other node' \
        srun -Q -N$((n * 2)) --ntasks-per-node=2 --gpus-per-node=1 --tp=2
done
if command -v python3 >/dev/null; then
    python3 -c 'import socket, time
held = socket.create_server(("", 61234))
open("held", "w")
time.sleep(60)' &
    until_true [ -e held ]
    check "a taken MASTER_PORT, which one node knows" \
        one_line 'plait: node1: port 61234 of .* is in use.*-ports$' \
        env MASTER_PORT=61234 srun -Q -N4 --ntasks-per-node=2 --tp=2
    kill $!
else
    skip "a taken MASTER_PORT, which one node knows" "no python3"
fi
# srun keeps no step that it refused.
later_steps()
{
    salloc -Q -N4 -n6 bash -c 'srun -Q --tp=2 true
        timeout 240 srun -Q -n6 true' 2>/dev/null
}
check "a refused step leaves its job to others" later_steps
# The environment can contain values that no command line would.
inject()
{
    env "_SLURM_SPANK_OPTION_plait_$1" timeout 240 \
        srun -N2 --ntasks-per-node=2 bash -c 'echo ran'
}
injected()
{
    local out
    out=$(inject "$1" 2>&1) && return 1
    like "$out" "$2" && [[ $out != *ran* ]]
}
check "a bad flag from the environment" injected tp=bad 'must be a whole number'
check "... is told by one node" is 1 \
    "$(inject tp=bad 2>&1 | grep -c plait:)"
check "a flag from the environment without a plan" injected tp=2 'no plan'
check "a huge value from the environment" \
    injected "tp=$(printf '9%.0s' {1..5000})" 'must be a whole number'
plan_lies()
{
    local out
    out=$(SLURM_PLAIT_PLAN=$1 inject tp=2 2>&1) && return 1
    like "$out" 'plait: ' && [[ $out != *ran* ]]
}
for lie in '' x 1/2.1.1.2.1/tp-cp-ep-dp-pp/topology/0,1,2,3/4*2 \
    1/2.1.1.1.1/tp-cp-ep-dp-pp/linear/0-1/2*1 \
    1/99999999999.1.1.1.1/tp-cp-ep-dp-pp/linear/0-1/2*2; do
    check "a plan from elsewhere: '$lie'" plan_lies "$lie"
done
# sbatch passes flags to the sruns of its job in this form.
batch_injected()
{
    batch "$work/injected.out" -N2 --ntasks-per-node=2 \
        --wrap 'export SLURM_SPANK__SLURM_SPANK_OPTION_plait_tp=bad
            srun bash -c "echo ran"' >/dev/null
    like "$(cat "$work/injected.out")" 'must be a whole number' &&
        ! grep ran "$work/injected.out"
}
check "a bad flag in a job's environment" batch_injected
check "a bad flag in sbatch's" refused 'must be a whole number' \
    env SLURM_SPANK__SLURM_SPANK_OPTION_plait_tp=bad sbatch --wrap true
check "no node is down or drained after all that" \
    is '' "$(sinfo -h -N -t down,drain,fail -o '%N %T %E')"
# If the plugin is optional, Slurm ignores its return values; a refused step
# still must not run.
sed -i s/^required/optional/ slurm/plugstack.conf
not_run()
{
    local out
    out=$(timeout 240 srun -N4 "$@" bash -c 'echo ran' 2>&1) && return 1
    like "$out" 'plait: ' && [[ $out != *ran* ]]
}
check "optional: a bad value" not_run -n8 --tp=0
check "optional: a bad product" not_run -n8 --tp=3
check "optional: what only the nodes tell" not_run -n6 --tp=2
sed -i s/^optional/required/ slurm/plugstack.conf
check "fewer GPUs than tasks" refused 'use --gpus-per-node=3' \
    srun -N1 -n3 --gpus=2 --tp=3 true
check "... unless shared on purpose" \
    timeout 240 srun -N1 -n3 --gpus=2 --tp=3 --pin=none true
cat >"$work/het.sh" <<'END'
#!/bin/bash
#SBATCH -n1
#SBATCH hetjob
#SBATCH -n1
srun --tp=1 true
END
het_batch()
{
    batch "$work/het.out" "$work/het.sh" >/dev/null
    like "$(cat "$work/het.out")" heterogeneous
}
check "a het batch job's srun" het_batch
done_testing
