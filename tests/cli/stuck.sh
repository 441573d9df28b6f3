#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trainings that are made to hang: one line says which rank the others wait for
# and where that rank is, and all of them end. Four ranks each, started by plait
# run and, if MPI behaves differently, also by mpirun.
set -u
top=$(cd "$top_builddir" && pwd)
src=$(cd "$top_srcdir" && pwd)
ranks=$top/tests/unit/stuck_ranks
calls=$top/tests/unit/.libs/hang_calls.so
export TEST_DEAD=$top/tests/unit/dead_files
. "$src/tests/lib/until.sh"
. "$src/tests/lib/tier.sh"
export OMP_NUM_THREADS=1
dir=$(mktemp -d) || exit 1
shm=$(mktemp -d /dev/shm/plait.XXXXXX) || exit 1
export OMPI_MCA_btl_vader_backing_directory=$shm
trap 'rm -rf "$dir" "$shm"' EXIT
python3 -B "$src/tests/lib/small_model.py" "$dir" gpt2 ||
    { echo "1..0 # SKIP needs python3"; exit 0; }
cat >"$dir/rank" <<'EOF'
me=${PLAIT_RANK:-$OMPI_COMM_WORLD_RANK}
echo $$ >"pid.$me"
[ "$me" = "${TEST_DEAD_RANK:-}" ] && exec "$TEST_DEAD" "$PWD/dead" "$@"
exec "$@"
EOF

# -- one hang, in its own folder -----------------------------------------------

# launch COMMAND...: start four ranks of it
launch()
{
    local with=("$top/plait" run --np 4 --pin=none ${elastic:-} ${layout:-} --)
    [ "${via:-}" = mpi ] && with=(sh "$src/tests/lib/mpirun.sh" 4)
    : >out
    ${before:-} "${with[@]}" sh "$dir/rank" ${apart:-} "$@" >>"${output:-out}" 2>>out \
        </dev/null &
    pid=$!
}

# train [ARGS]: start a run that would not end by itself. With layout=--dp=4 a
# step has few exchanges, each of which waits for a processor on a busy machine:
# the hang comes about within the limit.
train()
{
    local size=${layout:---tp=2 --dp=2} sets
    sets=${size//--/--set parallel.}
    [ -z "${elastic:-}" ] || sets= # it changes
    layout=$size launch "$top/plait-train" "$dir/c.yaml" --device cpu \
        $sets --set train.steps=100000000 \
        --set train.timeout="${limit:-12}" "$@"
}

trains() { until_true eval 'grep -q "step 1/" out || ! kill -0 $pid'; }

# ends PATTERN: the run ends with just this line, and no rank is left
ends()
{
    if ! until_true eval '! kill -0 $pid'; then
        kill -9 $pid $(living $(cat pid.*))
        echo "it does not end"
        return 1
    fi
    wait $pid && echo "its status is 0" && return 1
    [ "$(grep -c 'ended$' out)" = 1 ] && grep -q "$1" out ||
        { echo "not said: $1"; return 1; }
    until_true eval '[ -z "$(living $(cat pid.*))" ]'
}

# said WHAT PATTERN: a limit of WHAT ends it
said() { ends "$1 has not ended for [0-9]* s (train.timeout): $2"; }

# goes_on SECONDS: the run still trains after that long, and has told nothing.
# Killed before its first step, it would leave the names of memory behind that
# its ranks are about to share.
goes_on()
{
    sleep "$1"
    local done=$(grep -c "step [0-9]*/" out)
    until_true eval '[ "$(grep -c "step [0-9]*/" out)" -gt '$done' ] ||
        ! kill -0 $pid'
    kill -0 $pid && kill -9 $pid $(living $(cat pid.*)) && ! grep "ended$" out
}

who() { echo "rank $1 ([^ ]*, process [0-9]*)"; }

# stop RANK LAYOUT: stop a rank, so that members of each kind of group wait
stop()
{
    layout=${*:2}
    train
    trains
    kill -STOP $(cat pid.$1)
    said "step [0-9]*" "$(who $1) is stopped by a signal; .*wait"
}

# preload CALL RANK FILE ARGS...: RANK hangs in CALL once the run trains
preload()
{
    export TEST_HANG_GO=$PWD/go TEST_HANG_PIPE=$PWD/pipe
    export TEST_HANG_CALL=$1 TEST_HANG_RANK=$2 TEST_HANG_FILE=$3
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
    shift 3
    mkfifo pipe
    export LD_PRELOAD=$calls
    train "$@"
    unset LD_PRELOAD
    trains
    touch go
}

loader="never entered .*; it is in the data loader since [0-9:]*"
silent_file()
{
    layout=--dp=4
    preload read 1 tokens.bin
    said "step [0-9]*" \
        "$(who 1) $loader (read of .*/pipe); 3 other ranks wait since"
}

locked_loader()
{
    preload lock 3 tokens.bin
    said "step [0-9]*" "$(who 3) $loader; 3 other ranks wait since"
}

silent_disk()
{
    preload sync 0 "$PWD/ck" --set checkpoint.dir="$PWD/ck" \
        --set checkpoint.every=3 --set checkpoint.async=false
    said "step [0-9]*" "$(who 0) never entered .*; it is saving a checkpoint \
since [0-9:]* (sleep); 3 other ranks wait"
}

slow_rank()
{
    limit=100
    preload slow 1 tokens.bin
    goes_on 2
}

# Rank 0 blocks because its output is not read: there is room for its first
# lines and for some steps, of which it prints one a second.
full_pipe()
{
    layout=--dp=4
    mkfifo stuffed
    exec 8<>stuffed
    python3 -c 'import fcntl; fcntl.fcntl(8, 1031, 4096)' # F_SETPIPE_SZ
    head -c 3500 /dev/zero >&8
    output=stuffed
    train
    said "step [0-9]*" "$(who 0) never entered .*; it is writing its progress \
and metrics since [0-9:]* (write of standard output, .*/stuffed); 3 other"
}

# A limit that is learned holds in steps alone; the other holds before the first
# and while a checkpoint is saved too.
auto=(--set train.timeout=auto --set train.phase_timeout=6)
nothing="no rank has done anything for 6 s (train.phase_timeout): "
silent_start()
{
    touch go
    preload read 1 tokens.bin "${auto[@]}"
    ends "$nothing$(who 1) never entered .* (read of .*/pipe); 3 other ranks"
}

# The record of who trains there goes on to be written.
silent_claimed()
{
    touch go
    preload read 1 tokens.bin "${auto[@]}" --set checkpoint.dir="$PWD/ck" \
        --metrics "$PWD/m.jsonl"
    ends "$nothing$(who 1) never entered .* (read of .*/pipe); 3 other ranks"
}

silent_save()
{
    touch go # from the first checkpoint on, when no limit is learned yet
    preload sync 0 "$PWD/ck" --set checkpoint.dir="$PWD/ck" \
        --set checkpoint.every=3 --set checkpoint.async=false "${auto[@]}"
    ends "$nothing$(who 0) never entered .*; it is saving a checkpoint \
since [0-9:]* (sleep); 3 other ranks wait"
}

silent_evaluation()
{
    touch go
    cp "$dir/tokens.bin" val.bin
    preload read 1 val.bin "${auto[@]}" --set data.val="$PWD/val.bin" \
        --set train.eval_every=2
    ends "$nothing$(who 1) never entered .* (read of .*/pipe); 3 other ranks"
}

# from_checkpoint CALL ARGS...: rank 1 hangs in it once it loads weights
from_checkpoint()
{
    "$top/plait-train" "$dir/c.yaml" --device cpu --set train.steps=1 \
        --set checkpoint.dir="$PWD/first" >first.out 2>&1 ||
        { cat first.out; return 1; }
    touch go
    preload "$1" 1 "$PWD/first" "${@:2}" --init "$PWD/first"
}

silent_load()
{
    from_checkpoint map "${auto[@]}"
    ends "$nothing$(who 1) never entered .*; it is loading its weights since \
[0-9:]* (read of .*/pipe); 3 other ranks"
}

# The last checkpoint is not written: no step follows.
silent_end()
{
    touch go
    preload sync 0 "$PWD/ck" --set checkpoint.dir="$PWD/ck" \
        --set checkpoint.every=9 --set checkpoint.async=false "${auto[@]}" \
        --set train.steps=3
    ends "$nothing$(who 0) never entered .*; it is saving a checkpoint \
since [0-9:]* (sleep); 3 other ranks wait"
}

# goes_on_without RANK PATTERN: in an elastic run the limit replaces the rank,
# and the others make steps.
goes_on_without()
{
    until_true eval 'sed "1,/back at step/d" out | grep -q "step [0-9]*/" ||
        ! kill -0 $pid'
    kill -9 $pid $(living $(cat pid.*)) 2>/dev/null
    [ "$(grep -c "train.phase_timeout" out)" = 1 ] &&
        grep -q "^plait-train: $nothing$2.*; going on without who does not \
answer$" out || { echo "not said: $2"; return 1; }
    grep -q "^plait-train: $(who $1)*, which does not answer) is gone in step \
[0-9]*; going on with dp [13] of [24]" out || { echo "none is gone"; return 1; }
}

spare_load()
{
    elastic=--elastic # rank 1 alone reads its part
    from_checkpoint map "${auto[@]}" --set checkpoint.dir="$PWD/ck"
    goes_on_without 1 "$(who 1) never entered .*; it is loading its weights"
}

spare_save()
{
    elastic=--elastic layout=--dp=4
    touch go
    preload sync 2 "$PWD/ck" --set checkpoint.dir="$PWD/ck" \
        --set checkpoint.every=3 --set checkpoint.async=false "${auto[@]}"
    goes_on_without 2 "$(who 2) never entered .*; it is saving a checkpoint"
}

spare_evaluation()
{
    elastic=--elastic layout=--dp=4
    touch go
    cp "$dir/tokens.bin" val.bin
    preload read 3 val.bin "${auto[@]}" --set data.val="$PWD/val.bin" \
        --set train.eval_every=2 --set checkpoint.dir="$PWD/ck"
    goes_on_without 3 "$(who 3) never entered "
}

# Ranks that wait for one that goes on, for 15 s: longer than what moves nothing
# may take, and than what is proved needs. On a busy machine the reader itself
# moves seconds later than it would.
patient=(--set train.timeout=auto --set train.phase_timeout=12)
late_reader()
{
    touch go
    preload late 1 tokens.bin "${patient[@]}"
    goes_on 1
}

late_evaluation()
{
    cp "$dir/tokens.bin" val.bin
    preload late 1 val.bin "${patient[@]}" --set data.val="$PWD/val.bin" \
        --set train.eval_every=2
    goes_on 20
}

late_load()
{
    from_checkpoint latemap
    goes_on 1
}

# Nobody knows for 20 s whether another run has the folder.
late_claim()
{
    mkdir ck
    : >ck/.running
    train "${patient[@]}" --set checkpoint.dir="$PWD/ck"
    trains
    goes_on 1
}

# A debugger stops the thread that trains, while the others of the process run.
in_debugger()
{
    limit=100
    train --set train.phase_timeout=60
    trains
    python3 - $(cat pid.2) <<'END' || return 1
import ctypes, os, sys, time
pid = int(sys.argv[1])
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long] * 4
SEIZE, INTERRUPT, DETACH, ALL = 0x4206, 0x4207, 17, 0x40000000
if ptrace(SEIZE, pid, 0, 0) < 0 or ptrace(INTERRUPT, pid, 0, 0) < 0:
    sys.exit("ptrace: " + os.strerror(ctypes.get_errno()))
os.waitpid(pid, ALL)
with open(f"/proc/{pid}/stat") as f:
    assert f.read().rsplit(")", 1)[1].split()[0] == "t"
time.sleep(12)
ptrace(DETACH, pid, 0, 0)
END
    goes_on 1
}

stopped_for_long()
{
    limit=100
    train
    trains
    kill -STOP $(cat pid.1)
    sleep 10
    kill -CONT $(cat pid.1)
    goes_on 1
}

dead_data()
{
    mkdir dead
    cp "$dir/tokens.bin" dead/
    train --set data.train="$PWD/dead/tokens.bin"
}

dead_to_one()
{
    export TEST_DEAD_RANK=2
    dead_data
    said "opening the data" "$(who 2) never entered .*; it is opening its data \
since [0-9:]* (look-up of $PWD/dead/tokens.bin); 3 other ranks wait since"
}

dead_to_all()
{
    before="$TEST_DEAD $PWD/dead"
    dead_data
    said "opening the data" "$(who 0) never entered .*; it is opening its data \
since [0-9:]* (look-up of $PWD/dead/tokens.bin); 3 other ranks wait since"
}

# differ KIND SENTENCE: ranks whose collectives differ
differ()
{
    layout=--tp=2
    launch "$ranks" "$1"
    ends "$2"
}

# unlike MISTAKE PATTERN: a mismatch ends the run at once, with just this line
unlike()
{
    layout=--tp=2
    launch "$ranks" "$1"
    until_true eval '! kill -0 $pid'
    wait $pid && echo "its status is 0" && return 1
    [ "$(grep -cx "$2: ended" out)" = 1 ] && [ "$(wc -l <out)" = 1 ] ||
        { echo "not said: $2"; cat out; return 1; }
}

# proves KIND SENTENCE: ... of which rank 2 is guilty; nobody waits for a limit
proves() { differ "$1" "^plait-train: $(who 2) $2.* can go on: ended"; }

# -- all of them --------------------------------------------------------------

host=$(hostname)
names=()
jobs=()
# hang NAME FUNCTION ARGS...: run it in the background, eight at once, as they
# mostly wait: an eighth of a processor is what one takes
hang()
{
    local work=$dir/${#jobs[@]}
    until [ "$(jobs -rp | wc -l)" -lt 8 ]; do sleep 0.1; done
    mkdir "$work"
    # Each gets its own TMPDIR: it is removed with what a killed mpirun leaves,
    # and two mpiruns that start at once would both create the same folder.
    (cd "$work" && export TMPDIR=$work && "${@:2}"
        echo $? >"$work.status") >"$work.said" 2>&1 &
    names+=("$1")
    jobs+=($!)
}

# again NAME FUNCTION ARGS...: a hang that says once more what another says
again() { ! all_tier || hang "$@"; }

skip()
{
    names+=("$1 # SKIP $2")
    jobs+=(0)
    echo 0 >"$dir/$((${#jobs[@]} - 1)).status"
}

hang "a member of a tp group is stopped" stop 0 --tp=2 --pp=2
again "a member of a pp group is stopped" stop 3 --pp=2 --dp=2
again "a member of a dp group is stopped" stop 1 --tp=2 --dp=2
again "a rank that is stopped for 10 s" stopped_for_long
if [ "$(id -u)" = 0 ]; then
    again "a rank in a debugger for 12 s" in_debugger
else
    skip "a rank in a debugger for 12 s" "needs root"
fi
hang "nobody reads what is printed" full_pipe
cases=("a file that does not answer:silent_file"
    "... before the first step:silent_start"
    "an elastic run goes on without a rank that loads for ever:spare_load"
    "a rank that reads for 15 s:late_reader")
! all_tier || cases+=("a loader that waits for itself:locked_loader"
    "a disk that does not answer:silent_disk"
    "... after the last step:silent_end"
    "... while a folder is claimed:silent_claimed"
    "... while saving, with a learned limit:silent_save"
    "... in an evaluation:silent_evaluation"
    "... while loading weights:silent_load"
    "an elastic run goes on without a rank that saves for ever:spare_save"
    "... that evaluates for ever:spare_evaluation"
    "a rank that reads weights for 15 s:late_load"
    "... in an evaluation:late_evaluation"
    "... that waits for what became of another run:late_claim"
    "a rank that is slow is not accused:slow_rank")
for case in "${cases[@]}"; do
    if [ -f "$calls" ]; then
        hang "${case%:*}" "${case#*:}"
    else
        skip "${case%:*}" "built without shared libraries"
    fi
done
mkdir "$dir/dead"
for case in "data of a server that has gone, for one rank:dead_to_one" \
    "... and for all:dead_to_all"; do
    if "$TEST_DEAD" "$dir/dead" true 2>"$dir/why"; then
        hang "${case%:*}" "${case#*:}"
    else
        skip "${case%:*}" "$(cat "$dir/why")"
    fi
done
away="step 1 has not ended for 8 s (train.timeout): $(who 2) never entered \
all-reduce 20 of its tp group; it is starting since [0-9:]* (sleep); 3 other \
ranks wait"
again "a rank that is away" differ away "$away"
hang "... and has not noted where it is" differ unwatched "$away"
skipped="never entered all-reduce 20 of its tp group; it waits in control \
all-reduce [0-9]* of the world"
hang "a rank that skips a collective" proves skip "$skipped"
hang "a rank that waits for a message" proves message "never entered \
all-reduce 20 of its tp group; it waits in receive 1 of its tp group"
apart="unshare --pid --fork --kill-child"
if $apart true 2>/dev/null; then
    hang "... of ranks that see no process of each other, as on four nodes" \
        proves skip "$skipped"
else
    skip "the same on four nodes" "no right to namespaces"
fi
apart=
place="([a-z_]*.c:[0-9]*)"
hang "a sum of another size" unlike size "rank 2 ($host) entered all-reduce of \
2097152 bytes $place as number [0-9]* of world, rank 0 all-reduce of 4194304 \
bytes $place"
again "another operation" unlike other "rank 2 ($host) entered all-gather of \
4194304 bytes $place as number [0-9]* of world, rank 0 all-reduce of 4194304 \
bytes $place"
again "values of another kind" unlike kind "rank 3 ($host) entered all-reduce of \
8 bytes $place as number [0-9]* of tp, rank 2 barrier $place"
if command -v mpirun >/dev/null && grep -q "define HAVE_MPI 1" "$top/config.h"
then
    via=mpi
    export PLAIT_CHECK_COLLECTIVES=0 # it would end these at once
    hang "mpirun: a rank is stopped" stop 2 --tp=2 --pp=2
    again "mpirun: a rank that skips a collective" proves skip "$skipped"
    again "mpirun: values of another kind" proves kind "entered a barrier of 0 \
bytes where $(who 3) is in control all-reduce 20 of their tp group, of 8 bytes"
else
    skip "the same under mpirun" "built or installed without MPI"
fi

wait
for ((i = 0; i < ${#jobs[@]}; i++)); do
    if [ "$(cat "$dir/$i.status")" = 0 ]; then
        echo "ok $((i + 1)) - ${names[i]}"
    else
        echo "not ok $((i + 1)) - ${names[i]}"
        sed 's/^/# /' "$dir/$i.said" "$dir/$i/out"
    fi
done
echo "1..${#jobs[@]}"
