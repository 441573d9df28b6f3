#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait run in Slurm without the plugin: each task finds the same as with it.
. "$top_srcdir/tests/cluster/tap.sh"
cached
export PLAIT_QUIET=1 # what is said of RANK and SLURM_PROCID is in ranks.sh

# What a task sees of the plan and of its binding, without what differs between
# steps: number, port and secret.
cat >task <<'END'
#!/bin/bash
{ env | grep -E "^(PLAIT_|RANK=|WORLD_SIZE=|LOCAL_|NODE_RANK=|GROUP_RANK=|\
MASTER_ADDR=|CUDA_(VISIBLE|DEVICE)|SLURM_PLAIT_PLAN=|NCCL_IB|UCX_NET)" |
    grep -v "^PLAIT_\(JOBID\|SECRET\)=" | sort
sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status; } >$1/$SLURM_PROCID
[ -z "$MASTER_ADDR" ] || echo "$MASTER_PORT" >>$1.ports
END
chmod 755 task

# alike FLAGS... -- PLAIT_FLAGS...: whether plugin and plait run give each task
# the same
alike()
{
    local flags=()
    while [ "$1" != -- ]; do
        flags+=("$1")
        shift
    done
    shift
    rm -rf with without ./*.ports
    mkdir with without
    timeout 240 srun -Q "${flags[@]}" "$@" ./task with || return 1
    mv slurm/plugstack.conf plugstack
    : >slurm/plugstack.conf
    timeout 240 srun -Q "${flags[@]}" "$plait" run "$@" -- ./task without
    rc=$?
    mv plugstack slurm/plugstack.conf
    [ $rc = 0 ] && [ -s with/0 ] && diff -r with without &&
        is 1 "$(sort -u without.ports | wc -l)"
}
four=(-N4 --ntasks-per-node=2)
check "the same contract and binding" \
    alike "${four[@]}" --gpus-per-node=2 -- --tp=2 --pp=2
check "... without GPUs" alike "${four[@]}" -- --tp=2
check "... in another rank order" \
    alike "${four[@]}" -- --tp=2 --pp=2 --rank-order=tp-cp-ep-pp-dp
check "... linear" alike "${four[@]}" -- --tp=2 --pp=2 --placement=linear
check "... cyclic" alike "${four[@]}" --distribution=cyclic -- --tp=2
check "... on nodes with different numbers of tasks" \
    alike -N4 -n6 -- --tp=1 --pp=2
check "... unbound" alike "${four[@]}" --gpus-per-node=2 -- --tp=2 --pin=none
printf 'node%d\n' 4 3 2 1 >hostfile
export SLURM_HOSTFILE=$work/hostfile
check "... with a host file" alike -n4 --distribution=arbitrary -- --tp=1
unset SLURM_HOSTFILE

: >slurm/plugstack.conf
show=$(srun -Q "${four[@]}" "$plait" run --tp=2 --pp=2 --show-plan true 2>&1)
check "--show-plan prints the plan once" like "$show" '2-3 +node3 +leaf0 +0-1'
check "... once" is 1 "$(grep -c node3 <<<"$show")"
for bad in --tp=3 '--tp=2 --pp=2 --rank-order=pp-dp-cp-ep-tp'; do
    # shellcheck disable=SC2086
    check "one line for $bad" is 1 "$(srun -Q "${four[@]}" "$plait" run $bad \
        true 2>&1 | grep -c plait:)"
done

check "... also where tasks come late" is 1 "$(srun -Q "${four[@]}" sh -c \
    '[ $SLURM_LOCALID = 0 ] || sleep 1; exec "$0" run --tp=3 true' "$plait" \
    2>&1 | grep -c plait:)"
check "one line for what each node finds" is 1 "$(srun -Q "${four[@]}" \
    --gpus-per-node=1 "$plait" run --tp=1 true 2>&1 | grep -c "plait: this node \
has 2 tasks but 1 GPU")"

# ---- the secret ----

# The secrets that the tasks have, and how many tasks have each.
secrets()
{
    timeout 240 srun -Q "${four[@]}" "$plait" run --tp=2 "$@" \
        sh -c 'echo $PLAIT_SECRET' 2>&1 | sort | uniq -c | xargs
}
first=$(secrets)
check "all tasks have one secret" like "$first" '^8 [0-9a-f]{64}$'
check "... which no other step has" eval '[ "$first" != "$(secrets)" ]'
check "... and --show-plan says where from" like \
    "$(srun -Q -N2 -n2 "$plait" run --show-plan true 2>&1)" \
    "  secret: handed over by munge"
check "... and needs no munge on one node" like \
    "$(srun -Q -N1 -n2 "$plait" run --show-plan sh -c 'echo $PLAIT_SECRET' \
        2>&1 | sort | uniq -c | xargs)" ' secret: made here.* 2 [0-9a-f]{64}'
check "one of the user's own is kept" is "8 $(printf '%032d' 7)" \
    "$(PLAIT_SECRET=$(printf '%032d' 7) secrets)"

# A process that is not of the step gets no answer, whatever credential it
# shows, and cannot keep ranks from theirs. Task 3 waits until it has tried.
cat >stranger <<'END2'
#!/usr/bin/python3
import os, secrets, socket, subprocess, sys, time
job, munge, port = sys.argv[1], ["munge", "--socket=" + sys.argv[2], "-s"], 61500
other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
def say(index, text):
    for _ in range(1200):
        try:
            with socket.create_connection(("127.0.0.1", port), 60) as s:
                greeting = s.makefile("rb").readline()
                assert greeting.startswith(b"plait-meeting 2 ")
                s.sendall(b"member %d %s %s %s\n" % (
                    index, secrets.token_hex(16).encode(),
                    secrets.token_hex(32).encode(), text))
                return s.recv(100)
        except ConnectionRefusedError:
            time.sleep(0.05)
        except ConnectionResetError:
            return b""
def seal(text, who=[]):
    return subprocess.check_output(who + munge + [text]).strip()
for index in 0, 1, 2:
    rank = " %d" % (index + 1)
    rest = " 0 " + secrets.token_hex(16)
    said = [b"", b"MUNGE:AwQFAAC:", b"x" * 4000,
            seal("plait node %s 9%s" % (job, rest)),
            seal("plait node 1.0" + rank + rest),
            seal("plait node %s%s%s" % (job, rank, rest)),
            seal("plait node %s%s%s and more" % (job, rank, rest))]
    if os.getuid() == 0:
        said.append(seal("plait node " + job + rank + rest, other))
    print(*(say(index, text) for text in said))
END2
wait_for_three='echo $SLURM_JOB_ID.$SLURM_STEP_ID >job.$SLURM_PROCID
    until [ $SLURM_PROCID != 3 ] || [ -e go ]; do sleep 0.05; done
    exec "$0" run --tp=1 sh -c "echo \$PLAIT_SECRET"'
if command -v python3 >/dev/null; then
    MASTER_PORT=61500 timeout 240 srun -Q -N4 -n4 sh -c "$wait_for_three" \
        "$plait" >got 2>&1 &
    until_true [ -s job.0 ]
    timeout 240 python3 stranger "$(cat job.0)" "$work/slurm/munge.socket" \
        >heard 2>&1
    touch go
    wait $!
    check "a stranger gets no secret" is "b''" \
        "$(tr ' ' '\n' <heard | sort -u)"
    check "... and keeps nobody from it" like \
        "$(sort got | uniq -c | xargs)" '^4 [0-9a-f]{64}$'
else
    skip "a stranger gets no secret" "no python3"
fi
# A process that keeps connections open without sending does not block ranks.
cat >silent <<'END2'
#!/usr/bin/python3
import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held = []
while len(held) < 1500:
    try:
        held.append(socket.create_connection(("127.0.0.1", 61500), 60))
    except OSError:
        time.sleep(0.05)
open("go", "w").close()
time.sleep(240)
END2
if command -v python3 >/dev/null; then
    rm -f go job.*
    python3 silent &
    check "1,500 silent connections keep nobody from the plan" like \
        "$(MASTER_PORT=61500 timeout 240 srun -Q -N4 -n4 sh -c \
            "$wait_for_three" "$plait" 2>&1 | sort | uniq -c | xargs)" \
        '^4 [0-9a-f]{64}$'
    kill $!
    wait
fi

# Another user listens at the port that MASTER_PORT would be, at all ports but one
# at which the tasks may meet, and has the name of each node's socket: it costs
# the step nothing.
cat >squatter <<'END2'
#!/usr/bin/python3
import os, resource, socket, struct, sys, time
job, step = map(int, sys.argv[1].split("."))
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
value = 0xcbf29ce484222325
for byte in struct.pack("=III", job, step, 0x706c6169):
    value = (value ^ byte) * 0x100000001b3 % 2**64
stride = 1 + value % 4396
ports = [25003 + ((value >> 32) + i * stride) % 4397 for i in range(32)]
name = "\0plait-run-%d-%s-" % (os.getuid(), sys.argv[1])
if os.getuid() == 0:
    os.setuid(65534)
held = [socket.create_server(("", port)) for port in
        sorted({*ports[:-1], 25003 + (job * 2718 + step) % 4397})]
for node in range(4):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].bind(name + str(node))
    held[-1].listen(1)
open(os.path.join(sys.argv[2], "held"), "w").close()
time.sleep(240)
END2
wait_for_all='echo $SLURM_JOB_ID.$SLURM_STEP_ID >job.$SLURM_PROCID
    until [ -e go ]; do sleep 0.05; done
    exec "$0" run --tp=1 sh -c "echo \$PLAIT_SECRET \$MASTER_PORT"'
if command -v python3 >/dev/null; then
    rm -f go job.*
    mkdir -m 777 open
    timeout 240 srun -Q "${four[@]}" sh -c "$wait_for_all" "$plait" >got 2>&1 &
    job=$!
    until_true [ -s job.0 ]
    python3 squatter "$(cat job.0)" open &
    until_true [ -e open/held ]
    touch go
    wait $job
    check "ports and names that another user holds cost nothing" like \
        "$(sort got | uniq -c | xargs)" '^8 [0-9a-f]{64} 2[5-9][0-9]{3}$'
    kill $!
    wait
fi

# ---- what Slurm is asked for ----

mkdir bin
for program in scontrol sattach; do
    cat >bin/$program <<END2
#!/bin/bash
echo "\$SLURM_NODEID.\$SLURM_LOCALID $program \$*" >>$work/calls
exec $(command -v $program) "\$@"
END2
    chmod 755 bin/$program
done
PATH=$work/bin:$PATH timeout 240 srun -Q "${four[@]}" "$plait" run --tp=2 true
check "one task asks for layout, switches and RANK 0's address" is \
    "sattach --layout scontrol -o show scontrol -o show scontrol show topology" \
    "$(sed -n 's/^0\.0 \([^ ]* [^ ]* [^ ]*\).*/\1/p' calls |
        sed 's/ [0-9.]*$//' | sort | xargs)"
check "... and of other nodes one task, where a node's name leads nowhere" is \
    "1.0 2.0 3.0 scontrol -o show node node1" \
    "$(grep -v '^0\.0' calls | cut -d' ' -f1 | sort | xargs) $(
        grep -v '^0\.0' calls | cut -d' ' -f2- | sort -u)"
: >calls
PATH=$work/bin:$PATH timeout 240 srun -Q "${four[@]}" "$plait" run --tp=2 \
    --rendezvous=none true
check "without a port between nodes one task of each node asks" is \
    "0.0 1.0 2.0 3.0" "$(cut -d' ' -f1 calls | sort -u | xargs)"

check "doctor says that there is one" like "$("$plait" doctor 2>&1)" \
    "plait run under srun can hand tasks their secret over"
done_testing
