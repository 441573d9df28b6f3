#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait stuck JOBID with a trainer that is not Plait's, on nodes with processes
# of their own: it asks each node and combines their answers.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
stuck=$(readlink -f "$top_builddir/plait-stuck")
job=$(readlink -f "$top_srcdir/tests/cli/stacks.py")
[ -x "$stuck" ] || { echo "1..0 # SKIP no plait-stuck"; exit 0; }
. "$top_srcdir/tests/cluster/own_networks.sh"
. "$top_srcdir/tests/cluster/tap.sh" --netns yes --nodes 4 --gpus 0

mkfifo data
exec 8<>data
# The step by which plait stuck asks must not inherit the job's flags and
# numbers.
cat >script <<END2
#!/bin/bash
#SBATCH -N4 --ntasks-per-node=2 --tp=2 --pp=2
srun --overlap python3 -B $job $work/data 5 &
until [ -e ask ]; do sleep 0.1; done
$stuck "\$SLURM_JOB_ID" >inside 2>&1
echo "status \$?" >>inside
touch asked
wait
END2
id=$(sbatch --parsable -o out script)
until_true eval '[ "$(ls here.* 2>/dev/null | wc -l)" = 8 ]'

# Without the kernel's wchan, which shows what a process sleeps in, no rank is
# known to wait.
case $(cat "/proc/$(cat slurm/munged.pid)/wchan" 2>/dev/null) in
'' | 0)
    scancel "$id"
    echo "1..0 # SKIP this kernel shows no wchan"
    exit 0 ;;
esac

# PIDs of ranks are those of their nodes' namespaces.
settled()
{
    "$stuck" --wait 1 "$id" >said 2>&1 && ! grep -q "it goes on" said
}
until_true settled
check "the rank is named, with its node, and those that wait are counted" \
    like "$(cat said)" "^job $id.0: 8 ranks of python3[^ ]*, by their stacks: rank 5 \
\(node[1-4], process [0-9]+\) is elsewhere: [^;]*read of $work/data; 7 other ranks wait"
check "... of which 4 is in its group of the plan" like "$(cat said)" \
    "rank 4 \(in rank 5's tp group\): |ranks 0-4,6-7[^:]*: "
check "... in one answer of all nodes" is 1 "$(grep -c '^job' said)"
check "... and nobody is missed" eval '! grep -q "no answer\|were found" said'
touch ask
until_true [ -e asked ]
check "it may be asked inside of the job, whose flags are another step's" \
    eval 'like "$(cat inside)" "rank 5 \(node[1-4], process " &&
        like "$(cat inside)" "status 0$"'

# Stop a rank on another node.
rank=$(sed -n 's/.*rank 5 (\(node.\), process \([0-9]*\)).*/\1 \2/p' said)
first=$(pgrep -P "$(cat "slurm/slurmd.${rank% *}.pid")" | head -n 1)
nsenter -t "$first" -p -m kill -STOP "${rank#* }"
until_true eval 'settled && grep -q stopped said'
check "a rank that is stopped there" like "$(cat said)" \
    "rank 5 \(${rank% *}, process ${rank#* }\) is stopped by a signal; 7 other"

if command -v py-spy >/dev/null; then
    check "Python's functions are named, of all nodes" like "$(cat said)" \
        "all_reduce \(stacks.py:[0-9]+\)"
else
    skip "Python's functions are named, of all nodes" "no py-spy"
fi
scancel "$id"
until_true eval '[ -z "$(squeue -h)" ]'
check "a job that has ended is none" like "$("$stuck" "$id" 2>&1)" \
    "found no rank of it"
done_testing
