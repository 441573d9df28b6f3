#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait run --spares in Slurm, on nodes with networks and processes of their
# own: it leaves out the same nodes as the plugin's flag, prints the same line,
# and the tasks get the same plan.
. "$top_srcdir/tests/cluster/own_networks.sh" tc
. "$top_srcdir/tests/cluster/tap.sh" --netns yes --nodes 5 --gpus 0
cached

cat >task <<'END2'
#!/bin/bash
env | grep -E "^(PLAIT_|RANK=|WORLD_SIZE=|LOCAL_|NODE_RANK=|GROUP_RANK=|\
MASTER_ADDR=|SLURM_PLAIT_PLAN=)" | grep -v "^PLAIT_\(JOBID\|SECRET\)=" |
    sort >$1/$RANK
sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status >>$1/$RANK
echo "$SLURMD_NODENAME" >$1/node.$RANK
[ -n "$PLAIT_SECRET" ] && echo "$PLAIT_SECRET $MASTER_PORT" >>$1.secrets
END2
chmod 755 task
plugstack=$(cat slurm/plugstack.conf)

# with FLAGS...: use the plugin's flag; without FLAGS...: use plait run. Output
# and exit status are in `said`, what tasks see in a folder.
with()
{
    rm -rf with with.secrets
    mkdir with
    timeout 240 salloc -Q -N5 --ntasks-per-node=2 srun \
        "${@/#--spares=/--node-spares=}" ./task with \
        >said 2>&1
    echo "status $?" >>said
}
without()
{
    rm -rf without without.secrets
    mkdir without
    : >slurm/plugstack.conf
    timeout 240 salloc -Q -N5 --ntasks-per-node=2 srun "$plait" run "$@" \
        -- ./task without >said 2>&1
    echo "status $?" >>said
    echo "$plugstack" >slurm/plugstack.conf
}

# missing FOLDER: the nodes that have no rank there
missing()
{
    local i
    for i in 1 2 3 4 5; do
        grep -qx "node$i" "$1"/node.* 2>/dev/null || echo node$i
    done | xargs
}

# line: the preflight's line without its figures
line()
{
    sed -n 's/.*plait: //p' said | sed 's/[0-9.]* of the .*)/X/'
}

# alike LEFT_OUT FLAGS...: both ways leave out those nodes and print the same
# line, and all tasks see the same
alike()
{
    local out=$1 first
    shift
    with "$@"
    first=$(line)
    is "$out" "$(missing with)" && like "$(cat said)" "status 0$" || return 1
    without "$@"
    is "$out" "$(missing without)" && is "$first" "$(line)" &&
        like "$(cat said)" "status 0$" && [ -s without/0 ] &&
        diff -r with without && is 1 "$(sort -u without.secrets | wc -l)"
}

# Slurm 26 leaves out another node than the last.
with --tp=2 --pp=2 --spares=1
check "quiet nodes: the plugin leaves one out" is 1 "$(missing with | wc -w)"
without --tp=2 --pp=2 --spares=1
last=$(srun -Q -N5 -n5 sh -c 'echo $SLURM_NODEID $SLURMD_NODENAME' | sort -n |
    sed -n 's/^4 //p')
check "... and plait run the last" \
    eval 'is "$last" "$(missing without)" && like "$(cat said)" "status 0$"'
check "... which is that of 4 nodes" is "WORLD_SIZE=8 PLAIT_NNODES=4" \
    "$(grep -hE '^(WORLD_SIZE|PLAIT_NNODES)' without/0 | sort -r | xargs)"

tc qdisc add dev veth2 root tbf rate 40mbit burst 32kb latency 400ms
check "a slow link is named and left out in the same way" \
    alike node2 --tp=2 --pp=2 --spares=1
check "... with a line" like "$(line)" \
    "^preflight: node2: its link receives at X; left out$"
! all_tier || check "... and with the last node, where two are spare" \
    alike "node2 node5" --tp=2 --dp=3 --spares=2
if [ -x "$top_builddir/plait-train" ] && command -v python3 >/dev/null; then
    python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2
    : >slurm/plugstack.conf
    timeout 480 salloc -Q -N5 --ntasks-per-node=2 srun --mpi=none "$plait" run \
        --tp=2 --spares=1 -- "$top_builddir/plait-train" c.yaml --comm socket \
        --set train.steps=6 --metrics m.jsonl >said 2>&1
    echo "status $?" >>said
    echo "$plugstack" >slurm/plugstack.conf
    check "training goes on, over sockets of the four that are left" eval \
        'is 6 "$(wc -l <m.jsonl)" && like "$(cat said)" "status 0$" ||
            { cat said; false; }'
else
    skip "training goes on" "no plait-train or python3"
fi

first=$(pgrep -P "$(cat slurm/slurmd.node4.pid)" | head -n 1)
for _ in 1 2 3 4 5 6 7 8; do
    timeout 240 nsenter -t "$first" -p -m bash -c 'while :; do :; done' &
done
without --tp=2 --spares=1
check "two bad nodes and one spare: nothing starts, and both are named" \
    eval 'like "$(cat said)" "preflight: node2: its link .*; node4: other \
processes want its cores .*; --spares=1 is not enough" &&
        like "$(cat said)" "status 75$" && is 1 "$(grep -c plait: said)" &&
        is 0 "$(ls without | wc -l)"'
kill $(jobs -p) 2>/dev/null
wait
tc qdisc delete dev veth2 root

: >slurm/plugstack.conf
planned=(srun -Q --ntasks-per-node=2)
check "nothing is left of the nodes" refused \
    "--spares=2 leaves none of 2 nodes; ask for 3 or more" \
    "${planned[@]}" -N2 "$plait" run --spares=2 true
check "a layout counts the tasks that are left" refused "8 tasks" \
    "${planned[@]}" -N5 "$plait" run --tp=2 --pp=5 --spares=1 true
check "whole nodes are left out" refused "give --nodes and --ntasks-per-node" \
    srun -Q -N3 -n4 "$plait" run --spares=1 true
check "no port, no spares" refused "needs the port of --rendezvous=torch" \
    "${planned[@]}" -N3 "$plait" run --spares=1 --rendezvous=none true

# Only task 0 asks Slurm for the nodes' names: the others get them from it.
mkdir bin
for program in scontrol sattach; do
    cat >bin/$program <<END2
#!/bin/bash
echo "\$SLURM_NODEID.\$SLURM_LOCALID" >>$work/calls
exec $(command -v $program) "\$@"
END2
    chmod 755 bin/$program
done
PATH=$work/bin:$PATH timeout 240 "${planned[@]}" -N5 "$plait" run --tp=2 true
check "task 0 alone asks Slurm, four times" is "0.0 0.0 0.0 0.0" "$(xargs <calls)"
done_testing
