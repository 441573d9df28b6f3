#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No task of a planned step starts before all of its nodes have agreed. Tried
# with a node that is late, one that refuses, and one without the plugin.
. "$top_srcdir/tests/cluster/late.sh"

# The pids of tasks that wait for all nodes.
waiting()
{
    local pid
    for pid in $(pgrep -x plait-waits); do
        readlink /proc/$pid/fd/* | grep -qF "$PWD/slurm/log/" && echo $pid
    done 2>/dev/null
}

# late: start a step on three nodes, of which node2 is late, and return when the
# tasks of the others wait for it
late()
{
    rm -f started.* out
    touch "$TEST_HOLD/node2"
    srun -Q -w 'node[1-3]' -n3 --tp=1 \
        bash -c 'touch started.$SLURM_PROCID' >out 2>&1 &
    step=$!
    until_true eval '[ "$(waiting | wc -w)" = 2 ]'
}

late
sleep 6 # longer than until srun looks for nodes without the plugin
check "no task starts before the last node" is "" \
    "$(ls started.* 2>/dev/null)"
check "... and then all do" in_time
wait $step
check "... without a word" is "0 3 " "$? $(ls started.* | wc -l) $(cat out)"

check_ends_of_late

# Slurm itself waits for minutes for a stopped srun to take its messages.
late
kill -STOP $step
check "the tasks do not wait for an srun that is stopped" until_true \
    eval '[ -z "$(waiting)" ]'
rm -f "$TEST_HOLD/node2"
kill -CONT $step
check "... which says so once it goes on" in_time
check "... in one line" is 1 "$(grep -c plait: out)$(grep plait: out |
    grep -v 'plait: node[13]: no longer waits: srun has been silent for 25 seconds')"
check "... and no task has started" is "" "$(ls started.* 2>/dev/null)"
check "... and nothing is left" until_true quiet

# The same where it was stopped before any node had said a word.
rm -f started.* out
touch "$TEST_HOLD/node1" "$TEST_HOLD/node2" "$TEST_HOLD/node3"
srun -Q -w 'node[1-3]' -n3 --tp=1 \
    bash -c 'touch started.$SLURM_PROCID' >out 2>&1 &
step=$!
until_true eval '[ "$(pgrep -fc "^/bin/sh $TEST_HOLD/prolog")" = 3 ]'
kill -STOP $step
rm -f "$TEST_HOLD"/node?
until_true eval '[ "$(waiting | wc -w)" = 3 ]'
check "nodes that a stopped srun has not heard wait no longer" until_true \
    eval '[ -z "$(waiting)" ]'
kill -CONT $step
check "... and it hears so once it goes on" in_time
check "... in one line" is 1 "$(grep -c plait: out)$(grep plait: out |
    grep -v 'plait: node1: no longer waits: .* 25 seconds.*on 2 other nodes')"
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

# An srun without the plugin, whose user has written the program that the node
# asks, and cancels the step: Slurm would drain the node.
if command -v python3 >/dev/null; then
    cat >host.py <<'END'
# Listens for a node, and either sends it line ends for ever (signs; slow: one in
# 9 seconds), or never lets the kernel accept it (full). Says which port it has.
import socket, sys, time
s = socket.socket()
s.bind(("", 0))
s.listen(0 if sys.argv[1] == "full" else 9)
crowd = []
for _ in range(4 if sys.argv[1] == "full" else 0):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", s.getsockname()[1]))
    crowd.append(one)
print(s.getsockname()[1], flush=True)
if crowd:
    time.sleep(300)
guest, _ = s.accept()
for _ in range(300):
    guest.send(b"\n")
    time.sleep(9 if sys.argv[1] == "slow" else 1)
END
    sed 's:^PlugStackConfig=.*:PlugStackConfig=/dev/null:' slurm/slurm.conf \
        >slurm/bare.conf
    # held HOW VERSION: seconds until node1 is idle after the step was
    # cancelled; VERSION of the meetings, of which 1 proves nothing
    held()
    {
        local fake began
        rm -f port
        python3 host.py "$1" >port 2>/dev/null &
        fake=$!
        until_true [ -s port ]
        env SLURM_CONF="$PWD/slurm/bare.conf" _SLURM_SPANK_OPTION_plait_tp=1 \
            SLURM_PLAIT_PLAN=1/1.1.1.1.1/tp-cp-ep-dp-pp/topology/0/1*1 \
            SLURM_PLAIT_MASTER=127.0.0.1:61234 SLURM_PLAIT_KEEP= \
            SLURM_PLAIT_AGREE="$(cat port):$(printf '%032d' 0):$2" \
            srun -w node1 -n1 true >held.out 2>&1 &
        until_true eval '[ -n "$(steps)" ]'
        [ "$1$2" != signs2 ] || until_true eval '[ -n "$(waiting)" ]'
        scancel --user="$(id -un)"
        began=$SECONDS
        until_true eval '[ -z "$(steps)" ] &&
            [ "$(sinfo -h -n node1 -o %T)" = idle ]'
        echo $((SECONDS - began))
        kill $fake 2>/dev/null
        wait $!
    }
    until_true quiet
    # KillWait is 2 here; a node takes 10 to give up a silent host.
    for how in "signs 2" "full 2" "slow 2" "signs 1" "full 1" "slow 1"; do
        # shellcheck disable=SC2086
        seconds=$(held $how 2>/dev/null)
        check "a fake srun ($how) holds a cancelled step no longer: $seconds s" \
            [ "$seconds" -le 20 ]
    done
else
    skip "a fake srun holds no cancelled step" "no python3"
fi
done_testing
