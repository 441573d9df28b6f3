#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No task of a planned step starts before all of its nodes have agreed. Tried
# with a node that is late, one that refuses, and one without the plugin.
export TEST_HOLD=${TEST_HOLD:-$(mktemp -d "${TMPDIR:-/tmp}/plait-hold.XXXXXX")}
trap 'rm -rf "$TEST_HOLD"' EXIT
cat >"$TEST_HOLD/prolog" <<END
#!/bin/sh
while [ -e $TEST_HOLD/\$SLURMD_NODENAME ]; do sleep 0.1; done
END
chmod 755 "$TEST_HOLD" "$TEST_HOLD/prolog"
. "$top_srcdir/tests/cluster/tap.sh" --conf "Prolog=$TEST_HOLD/prolog"
trap 'rm -f "$TEST_HOLD"/node*; clean_up; rm -rf "$TEST_HOLD"' EXIT

# late: start a step on three nodes, of which node2 is late, and return when the
# others wait for it
late()
{
    rm -f started.* out
    touch "$TEST_HOLD/node2"
    srun -Q -w 'node[1-3]' -n3 --tp=1 \
        bash -c 'touch started.$SLURM_PROCID' >out 2>&1 &
    step=$!
    until_true eval '[ "$(steps | wc -w)" -ge 2 ]'
}

in_time()
{
    rm -f "$TEST_HOLD/node2"
    until_true eval '! kill -0 $step 2>/dev/null'
}

quiet()
{
    [ -z "$(steps)" ] && [ -z "$(squeue -h)" ]
}

late
sleep 6 # longer than until srun looks for nodes without the plugin
check "no task starts before the last node" is "" \
    "$(ls started.* 2>/dev/null)"
check "... and then all do" in_time
wait $step
check "... without a word" is "0 3 " "$? $(ls started.* | wc -l) $(cat out)"

late
scancel --user="$(id -un)"
check "a step that waits is cancelled" in_time
wait $step
check "... and no task has started" is "" "$(ls started.* 2>/dev/null)"
check "... and nothing is left" until_true quiet

late
disown $step
kill -KILL $step
check "the nodes do not wait for an srun that is gone" \
    until_true eval '[ "$(steps | wc -w)" = 0 ]'
rm -f "$TEST_HOLD/node2"
scancel --user="$(id -un)"
check "... start nothing" is "" "$(ls started.* 2>/dev/null)"
check "... and leave nothing" until_true quiet

# Slurm itself waits for minutes for a stopped srun to take its messages.
late
kill -STOP $step
check "the nodes do not wait for an srun that is stopped" until_true \
    grep -q 'has sent nothing for 25 seconds' slurm/log/slurmd.node1
rm -f "$TEST_HOLD/node2"
kill -CONT $step
check "... which says so once it goes on" in_time
check "... in one line" is 1 "$(grep -c plait: out)$(grep plait: out |
    grep -v 'plait: node[13]: no longer waits: .* of srun for 25 seconds')"
check "... and no task has started" is "" "$(ls started.* 2>/dev/null)"
check "... and nothing is left" until_true quiet

# A step daemon answers requests before it has created the step's container.
# Slurm then returns all processes of the machine as those of the step.
if strace -o /dev/null true 2>/dev/null; then
    strace -f -qq -o slow.trace -p "$(cat slurm/slurmd.node1.pid)" \
        -P /proc/self/oom_score_adj -e inject=openat:delay_enter=12000000 \
        2>strace.err &
    tracer=$!
    until_true grep -q "TracerPid:.*$tracer" \
        "/proc/$(cat slurm/slurmd.node1.pid)/status"
    check "a slow step daemon is waited for" is "" \
        "$(timeout 240 srun -Q -w node1 -n2 --tp=1 true 2>&1 || echo failed)"
    check "... which was slow" grep -q DELAYED slow.trace
    until_true quiet
    kill $tracer
    wait $tracer
else
    skip "a slow step daemon is waited for" "no strace, or it is forbidden"
fi

# A node without the plugin cannot report that it lacks it: Slurm starts its
# tasks.
sed 's:^PlugStackConfig=.*:PlugStackConfig=/dev/null:' slurm/slurm.conf \
    >slurm/bare.conf
kill "$(cat slurm/slurmd.node2.pid)"
until_true eval '! kill -0 "$(cat slurm/slurmd.node2.pid)" 2>/dev/null'
setsid slurmd -D -N node2 -f "$PWD/slurm/bare.conf" >/dev/null 2>&1 &
echo $! >slurm/slurmd.node2.pid
until_true scontrol ping >/dev/null
check "a node without the plugin works" \
    until_true timeout 20 srun -Q -w node2 -n1 true
check "... is named where it should follow a plan" refused \
    'plait: node2: its tasks started without a plan: it lacks' \
    srun -Q -w 'node[1-3]' -n3 --tp=1 bash -c '
        [ -z "$RANK" ] || touch started.$SLURM_PROCID; sleep 30'
check "... before any other task starts" is "" "$(ls started.* 2>/dev/null)"
done_testing
