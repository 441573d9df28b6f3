#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A planned step whose nodes lack the plugin, all or some, is ended by srun, which
# names them and fails, whether their tasks still run or ended at once. With
# EVERY=yes every subset of four nodes lacks it, each after one that differs by a
# node, as it takes a node's slurmd a second to start anew.
. "$top_srcdir/tests/cluster/tap.sh"

all='node1 node2 node3 node4'
bare=

# has NAME LIST: whether NAME is one of the list's
has()
{
    case " $2 " in *" $1 "*) ;; *) return 1 ;; esac
}

# lack NODE...: these nodes lack the plugin, the others have it
lack()
{
    local node
    for node in $all; do
        if has $node "$*"; then
            has $node "$bare" || plugstack_of $node
        elif has $node "$bare"; then
            plugstack_of $node "$(cat slurm/plugstack.conf)"
        fi
    done
    bare=$*
}

# ended_by_srun LIST COMMAND...: a step of a task on each of these nodes fails
# within 20 seconds; one line names those that lack the plugin
ended_by_srun()
{
    local list=$1 out rc began names
    shift
    names=$(for node in $bare; do
        case ",$list," in *,$node,*) echo $node ;; esac
    done | paste -s -d, | sed 's/,/, /g')
    until_true eval '[ -z "$(steps)" ]'
    began=$SECONDS
    out=$(timeout 240 srun -Q -w "$list" -N"$(tr , '\n' <<<"$list" | wc -l)" \
        --ntasks-per-node=1 --tp=1 "$@" 2>&1)
    rc=$?
    echo "$out"
    [ $rc != 0 ] && [ $rc != 124 ] || { echo "exit status $rc"; return 1; }
    [ $((SECONDS - began)) -le 20 ] || { echo "after $((SECONDS - began)) s"; return 1; }
    is 1 "$(grep -c plait: <<<"$out")" &&
        like "$out" "plait: $names: started tasks without a plan"
}

check "with the plugin" timeout 240 srun -Q -w node1,node2 -n2 --tp=1 true
for nodes in node1 node2 'node1 node2'; do
    lack $nodes
    for task in true 'sleep 1' 'sleep 20' false; do
        check "${nodes/ / and } of two lack it: $task" \
            ended_by_srun node1,node2 $task
    done
done
check "one node of one: true" ended_by_srun node2 true
# subset N: the nodes of the Nth subset of four, 1 to 15
subset()
{
    local node bits=$(($1 ^ $1 >> 1)) list=
    for node in $all; do
        [ $((bits & 1)) = 0 ] || list="$list $node"
        bits=$((bits >> 1))
    done
    echo $list
}
# as_four TASK...: what each of these subsets comes to
as_four()
{
    local task
    lack $nodes
    for task in "$@"; do
        check "$nodes of four lack it: $task" \
            ended_by_srun node1,node2,node3,node4 $task
    done
}
if [ "${EVERY:-}" = yes ]; then
    for number in $(seq 15); do
        nodes=$(subset $number)
        as_four true 'sleep 1' 'sleep 20'
    done
    lack $all
else
    for nodes in node4 'node1 node3' "$all"; do
        as_four true 'sleep 20'
    done
fi
refused_too()
{
    timeout 240 srun -Q -w node1,node2 -n2 --ntasks-per-node=1 "$@" 2>&1 &&
        return 1
    [ $? != 124 ]
}
check "what srun refuses itself fails there too" refused_too --tp=2 true
check "... and does not run on" refused_too --tp=2 sleep 300
# srun itself lacks it where a batch job's first node does: Slurm then knows
# nothing of the flags, and only the job's mark is left, for whoever reads it.
marked()
{
    printf '#!/bin/bash\n#SBATCH -w node1,node2 -n2 --tp=1 --dp=2\n%s\n' \
        'srun -n1 -N1 bash -c "echo \$SLURM_PLAIT_FLAGS:\$SLURM_PLAIT_PLAN"' \
        >script
    batch script.out script && is tp,dp: "$(cat script.out)"
}
check "a job whose first node lacks it bears a mark" marked
# no_start: plait run and plait-train do not start in such a step
no_start()
{
    printf '#!/bin/bash\n#SBATCH -w node1,node2 -n2 --tp=1 --dp=2\n%s\n' \
        "srun -n1 -N1 '$1' ${*:2}; echo status \$?" >script
    batch script.out script && like "$(cat script.out)" \
        "submitted with the flags tp,dp, but this step has no plan.*status [1-9]"
}
check "... which plait run reads" no_start "$(readlink -f "$plait")" run \
    --tp=1 --dp=2 touch started
check "... and starts nothing" [ ! -e started ]
[ ! -x "$top_builddir/plait-train" ] ||
    check "... which plait-train reads" \
        no_start "$(readlink -f "$top_builddir/plait-train")" x.yaml
check "jobs without flags run" timeout 240 srun -Q -N4 true
echo garbage >garbage.so
lack
plugstack_of node1 "optional $PWD/garbage.so"
bare=node1
check "a file that is no plugin" ended_by_srun node1,node2 true
check "nodes stay up" is 4 "$(sinfo -h -N -o '%N %T' |
    grep -cE ' (idle|completing|mixed|allocated)$')"
done_testing
