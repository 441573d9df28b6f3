#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Three jobs of a real Slurm hang at once, on one node. One line names the rank
# that the other waits for, from the trainer or, for one job, from plait stuck.
# The jobs leave neither processes nor a node that completes for ever.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
train=$(readlink -f "$top_builddir/plait-train")
calls=$(readlink -f "$top_builddir/tests/unit/.libs/hang_calls.so")
[ -f "$calls" ] || { echo "1..0 # SKIP built without shared libraries"; exit 0; }
. "$top_srcdir/tests/cluster/tap.sh" --nodes 1 --gpus 0 --cpus 8 || exit 99
srun --mpi=list 2>&1 | grep -q pmix ||
    { echo "1..0 # SKIP this Slurm has no PMIx"; exit 0; }
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
# With a thread on each core that Slurm has, six ranks take longer for their
# first step than a rank may be stopped.
export OMP_NUM_THREADS=1

python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2 || exit 99
mkfifo pipe

# A busy machine may take ten seconds to come to the read that hangs.
limit=25
# start NAME [PRELOAD] ARGS...: two ranks that would not end by themselves. They
# write to files: srun may not forward the last output. A step has few exchanges
# with dp: each of the hundreds that it has with tp waits for a processor on a
# busy machine, and such a step can last longer than the limit.
start()
{
    local name=$1 preload=$2
    shift 2
    timeout 480 srun -Q --mpi=pmix -n2 --dp=2 --output="$name.out.%t" bash -c '
        echo $$ >"$0.pid.$SLURM_PROCID"
        echo "$SLURM_JOB_ID" >"$0.job"
        export LD_PRELOAD=$1
        shift
        exec "$@"' "$name" "$preload" "$train" c.yaml \
        --set train.steps=100000000 "$@" >"$name.srun" 2>&1 </dev/null &
}

# gone NAME: whether both of its ranks have ended
gone()
{
    [ ! -e "/proc/$(cat "$1.pid.0")" ] && [ ! -e "/proc/$(cat "$1.pid.1")" ]
}

# said NAME PATTERN: whether exactly one line is printed about the hang, and
# matches
said()
{
    is 1 "$(cat "$1".out.? | grep -c "has not ended for")" &&
        like "$(cat "$1".out.?)" \
            "plait-train: step [0-9]+ has not ended for [0-9]+ s \
\(train.timeout\): rank 1 \([^ ]+, process $(cat "$1.pid.1")\) $2"
}

idle()
{
    [ "$(sinfo -h -N -o %T)" = idle ] && [ -z "$(squeue -h)$(steps)" ]
}

export TEST_HANG_GO=$work/go TEST_HANG_CALL=read TEST_HANG_RANK=1
export TEST_HANG_FILE=tokens.bin TEST_HANG_PIPE=$work/pipe
start stopped "" --set train.timeout=$limit
start pipe "$calls" --set train.timeout=$limit
start look "" --set train.timeout=1000
for name in stopped pipe look; do
    check "a job trains: $name" until_true grep -q "step 1/" "$name.out.0"
done

kill -STOP "$(cat look.pid.1)" "$(cat stopped.pid.1)"
touch go
# within() counts rounds, which take longer on a busy machine.
check "a rank is stopped: all are gone 5 s after train.timeout" \
    within $((limit + 5)) gone stopped
check "... and so they are where a data file became a pipe" \
    within $((limit + 5)) gone pipe
check "... it is named" said stopped "is stopped by a signal; .*1 other rank"
check "... and who reads the pipe" said pipe "never entered .*; it is in the \
data loader since [0-9:]+ \(read of $work/pipe\); 1 other rank waits since"

job=$(cat look.job)
# The other rank may still have been busy at the first look.
stuck()
{
    "$plait" stuck "$job" >stuck.out 2>&1
    ! grep -q "it goes on" stuck.out
}
until_true stuck
check "plait stuck names the rank of the third from outside" \
    like "$(cat stuck.out)" "^job $job[^ ]*: 2 ranks, step [0-9]+: rank 1 \
\([^ ]+, process $(cat look.pid.1)\) is stopped by a signal; .*1 other rank"
check "... in one line" is 1 "$(wc -l <stuck.out)"
check "... and leaves it alone" kill -0 "$(cat look.pid.0)"
scancel "$job"
check "scancel ends it, with the rank that is stopped" until_true gone look
wait
check "the node is idle, and not completing" until_true idle

check "a pipe that is there from the start is refused" \
    like "$(by_rank --mpi=pmix -n2 --tp=2 "$train" c.yaml \
        --set data.train="$work/pipe")" "plait-train: data.train: $work/pipe: .*no regular"
done_testing
