#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --node-spares on nodes with networks and processes of their own: a slow link and
# busy cores are named and left out, and the step runs on the rest.
. "$top_srcdir/tests/cluster/own_networks.sh" tc
. "$top_srcdir/tests/cluster/tap.sh" --netns yes --nodes 5 --gpus 0

# job N COMMAND...: run it in an allocation of N nodes; print its status at the
# end
job()
{
    local n=$1
    shift
    timeout 240 salloc -Q -N"$n" --ntasks-per-node=2 "$@" 2>&1
    echo "status $?"
}

where='echo "$RANK/$WORLD_SIZE of $SLURM_NTASKS on $SLURMD_NODENAME" \
    ${SLURM_PLAIT_PREFLIGHT_STEP:+in its own step}'

# ranks TEXT: whether each of eight ranks is there once, with Slurm's numbering
ranks()
{
    is "0/8 of 8 1/8 of 8 2/8 of 8 3/8 of 8 4/8 of 8 5/8 of 8 6/8 of 8 7/8 of 8" \
        "$(sed -n 's/^\(.*\) on node[0-9]$/\1/p' <<<"$1" | sort | xargs)"
}

# missing TEXT: nodes without a rank
missing()
{
    local i
    for i in 1 2 3 4 5; do
        grep -q " on node$i$" <<<"$1" || echo node$i
    done | xargs
}

slow_down()
{
    tc qdisc add dev "veth$1" root tbf rate 40mbit burst 32kb latency 400ms
}

mend()
{
    tc qdisc delete dev "veth$1" root
}

seen=$(job 5 srun --tp=2 --pp=2 --node-spares=1 bash -c "$where")
check "quiet nodes: one of five is left out" \
    eval 'ranks "$seen" && is 1 "$(missing "$seen" | wc -w)" &&
        like "$seen" "status 0$"'

arguments=$(cat slurm/plugstack.conf)
echo 'policies: [{partition: all, max: {dp: 2, pp: 2}}]' >site.yaml
echo "$arguments site=$work/site.yaml force-pin=none force-placement=linear" \
    >slurm/plugstack.conf
check "a policy" refused 'this partition allows --pp=2' \
    srun -N5 --ntasks-per-node=2 --tp=2 --pp=5 true
if all_tier; then
    seen=$(job 5 srun --tp=2 --pp=2 --node-spares=1 bash -c "$where")
    check "... and forced flags are not for the step that measures" \
        eval 'ranks "$seen" && is 1 "$(missing "$seen" | wc -w)" &&
            like "$seen" "status 0$"'
fi
seen=$(SLURM_PLAIT_PREFLIGHT_STEP=1 job 5 srun --tp=2 --pp=5 --node-preflight \
    touch ran)
check "... which starts no command" \
    eval '[ ! -e ran ] || { echo "$seen"; false; }'
echo "$arguments" >slurm/plugstack.conf

slow_down 2
seen=$(job 5 srun --tp=2 --pp=2 --node-spares=1 bash -c "$where")
check "a slow link is named, and the step goes on without its node" \
    eval 'ranks "$seen" && is node2 "$(missing "$seen")" && like "$seen" \
        "plait: preflight: node2: its link receives at [^;]*; left out" &&
        like "$seen" "status 0$"'
if all_tier; then
    seen=$(job 5 --node-spares=1 --tp=2 srun bash -c "$where")
    check "... where the job has the flags too" \
        eval 'ranks "$seen" && is node2 "$(missing "$seen")"'
    echo 'preflight: {hook: /bin/false}' >site.yaml
    echo "$arguments site=$work/site.yaml" >slurm/plugstack.conf
    seen=$(job 5 srun --tp=2 --pp=2 --node-spares=1 bash -c "$where")
    check "... and where the program of the site fails, which is said" \
        eval 'ranks "$seen" && is node2 "$(missing "$seen")" && like "$seen" \
            "plait: warning: preflight: /bin/false ended with status 1" &&
            like "$seen" "status 0$"'
    echo "$arguments" >slurm/plugstack.conf
fi

seen=$(job 5 srun -N4 -n8 -x node2 --tp=2 --node-spares=1 bash -c "$where")
check "a node that the user excludes is not timed" \
    eval 'is "2 node2" "$(missing "$seen" | wc -w) $(missing "$seen" |
            grep -o node2)" && is 0 "$(grep -c plait: <<<"$seen")" &&
        like "$seen" "status 0$" || { echo "$seen"; false; }'

first=$(pgrep -P "$(cat slurm/slurmd.node4.pid)" | head -n 1)
for _ in 1 2 3 4 5 6 7 8; do
    timeout 240 nsenter -t "$first" -p -m bash -c 'while :; do :; done' &
done
seen=$(job 5 srun --tp=2 --node-spares=1 bash -c "$where")
check "two bad nodes and one spare: nothing starts, and both are named" \
    eval 'like "$seen" "preflight: node2: its link .*; node4: other processes \
want its cores .*; --node-spares=1 is not enough" && like "$seen" "status 75$" &&
        is 1 "$(grep -c plait: <<<"$seen")" && is 0 "$(grep -c " on " <<<"$seen")"'
train()
{
    "$@" "$top_builddir/plait-train" c.yaml --set train.steps=6 \
        --metrics m.jsonl
}
cat >steps.py <<'END2'
import json
print(*(json.loads(line)["step"] for line in open("m.jsonl")))
END2
seen=$(job 5 srun --tp=2 --dp=3 --node-spares=2 bash -c "$where")
check "two spares: both are left out" \
    eval 'is "node2 node4" "$(missing "$seen")" && like "$seen" "status 0$"'
if [ -x "$top_builddir/plait-train" ] && command -v python3 >/dev/null &&
    srun --mpi=list 2>&1 | grep -q pmix; then
    python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2
    export UCX_NET_DEVICES=eth0
    # Of a step that is aborted srun loses what its tasks say last.
    seen=$(train job 5 srun --mpi=pmix --tp=2 --node-spares=2 \
        --output="$work/train.%t")
    check "... and training goes on, on the three that are left" \
        eval 'is "1 2 3 4 5 6" "$(python3 steps.py 2>&1)" &&
            like "$seen" "status 0$" || { echo "$seen"; cat train.*; false; }'
else
    skip "... and training goes on" "no plait-train, python3 or PMIx"
fi
kill $(jobs -p) 2>/dev/null
wait
mend 2

check "without a job there are no spares" refused \
    "--node-spares needs nodes that are allocated: give it to sbatch or salloc" \
    srun -Q -N5 --ntasks-per-node=2 --tp=2 --node-spares=1 true
check "nor where none would be left" refused \
    "--node-spares=5 leaves none of 5 nodes; ask for 6 or more" \
    salloc -Q -N5 --ntasks-per-node=2 --tp=2 --node-spares=5 true
check "nor on nodes that are counted" refused \
    "--node-spares does not work with --relative; leave one of the two out" \
    salloc -Q -N5 --ntasks-per-node=2 srun -N4 -n8 -r1 --tp=2 --node-spares=1 true
many=$(seq -f 'far%gaway' -s , 500)
check "nor are more nodes excluded than can be kept" refused \
    "--exclude is longer than 4095 characters: write it as" \
    salloc -Q -N5 --ntasks-per-node=2 srun --tp=2 --node-spares=1 -x "$many" true
check "a layout counts the tasks that are left" refused "8 tasks" \
    salloc -Q -N5 --ntasks-per-node=2 --tp=2 --pp=5 --node-spares=1 true
done_testing
