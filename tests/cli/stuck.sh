#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Hangs made on purpose: one line says which rank the others wait for, and all
# of them are gone.
set -u
train=$top_builddir/plait-train
mpirun=$top_srcdir/tests/lib/mpirun.sh
ranks=$top_builddir/tests/unit/stuck_ranks
calls=$(cd "$top_builddir" && pwd)/tests/unit/.libs/hang_calls.so
. "$top_srcdir/tests/lib/until.sh"
export OMP_NUM_THREADS=1
command -v mpirun >/dev/null && [ -x "$ranks" ] ||
    { echo "1..0 # SKIP needs mpirun"; exit 0; }
dir=$(mktemp -d) || exit 1
shm=$(mktemp -d /dev/shm/plait.XXXXXX) || exit 1
export OMPI_MCA_btl_vader_backing_directory=$shm
trap 'rm -rf "$dir" "$shm"' EXIT
export TMPDIR=$dir # what is left by an mpirun that is killed goes with it
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out
python3 -B "$top_srcdir/tests/lib/small_model.py" "$dir" gpt2 ||
    { echo "1..0 # SKIP needs python3"; exit 0; }

# Below mpirun, whatever stands between.
tree()
{
    local child
    for child in $(ps -o pid= --ppid "$1"); do
        echo "$child"
        tree "$child"
    done
}

# rank_pid N: the process of that rank
rank_pid()
{
    local p
    for p in $(tree "$pid"); do
        grep -qz "^OMPI_COMM_WORLD_RANK=$1\$" "/proc/$p/environ" 2>/dev/null &&
            echo "$p" && return
    done
}

limit=12
# start TP PP DP [ARGS]: a run of 4 ranks that would not end by itself. What the
# last one printed goes first: the shell in the background may empty the file
# only after its "step 1" was found here.
start()
{
    local size="--set parallel.tp=$1 --set parallel.pp=$2"
    size+=" --set parallel.dp=$3"
    shift 3
    rm -f "$dir/go"
    : >"$dir/out"
    sh "$mpirun" 4 "$train" "$dir/c.yaml" $size --set train.steps=100000000 \
        --set train.timeout=$limit "$@" >"$dir/out" 2>&1 </dev/null &
    pid=$!
    until_true eval 'grep -q "step 1/" "$dir/out" || ! kill -0 "$pid"'
}

# ended: the run is over, and nothing of it is left
ended()
{
    until_true eval '! kill -0 "$pid"' || { kill -9 $(tree "$pid") "$pid"
        return 1; }
    wait "$pid"
    [ $? != 0 ]
}

# said PATTERN: by the one line there is
said()
{
    [ "$(grep -c 'has not ended for' "$dir/out")" = 1 ] &&
        grep -q "step [0-9]* has not ended for [0-9]* s (train.timeout): $1" \
            "$dir/out"
}

who() { echo "rank $1 ([^ ]*, process [0-9]*)"; }

# A member of each kind of group is stopped.
for layout in "2 2 1:0" "1 2 2:3" "2 1 2:1"; do
    guilty=${layout#*:}
    start ${layout%:*}
    stopped=$(rank_pid "$guilty")
    kill -STOP $stopped
    ok "${layout%:*}: rank $guilty is stopped: the run ends" ended
    ok "... it is named" said "$(who "$guilty") is stopped by a signal; .*wait"
    ok "... and is gone" until_true test ! -e "/proc/$stopped"
done

if [ -f "$calls" ]; then
    export TEST_HANG_GO=$dir/go TEST_HANG_PIPE=$dir/pipe
    mkfifo "$dir/pipe"
    ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
    export ASAN_OPTIONS
    # preload CALL RANK FILE ARGS...: it hangs there once the run trains
    preload()
    {
        export TEST_HANG_CALL=$1 TEST_HANG_RANK=$2 TEST_HANG_FILE=$3
        shift 3
        LD_PRELOAD=$calls start 2 1 2 "$@"
        unset LD_PRELOAD
        touch "$dir/go"
    }
    loader="never entered .*; it is in the data loader since [0-9:]*"
    preload read 1 tokens.bin
    ok "a file that does not answer" ended
    ok "... and who reads it" said \
        "$(who 1) $loader (read of .*/pipe); 3 other ranks wait since"
    preload lock 3 tokens.bin
    ok "a loader that is locked" ended
    ok "... is named" said "$(who 3) $loader; 3 other ranks wait since"
    preload sync 0 "$dir/ck" --set checkpoint.dir="$dir/ck" \
        --set checkpoint.every=3 --set checkpoint.async=false
    ok "a disk that does not answer" ended
    ok "... and who saves" said "$(who 0) never entered .*; it is saving a \
checkpoint since [0-9:]* (sleep); 3 other ranks wait"
    limit=100
    preload slow 1 tokens.bin
    limit=12
    sleep 2
    ok "a rank that is slow" kill -0 "$pid"
    kill -9 $(tree "$pid") "$pid"
    ok "... is not accused" test 0 = "$(grep -c "has not ended" "$dir/out")"
else
    n=$((n + 1))
    echo "ok $n # SKIP built without shared libraries"
fi

# Ranks that do not do the same.
for kind in "away:never entered all-reduce 20 of its tp group; it is starting \
since [0-9:]* (sleep); 3 other ranks wait" \
    "skip:never entered all-reduce 20 of its tp group; it waits in control \
all-reduce [0-9]* of the world" \
    "kind:entered a barrier of 0 bytes where $(who 3) is in control all-reduce \
20 of their tp group, of 8 bytes; 3 other ranks wait" \
    "message:never entered all-reduce 20 of its tp group; it waits in receive 1 of \
its tp group"; do
    sh "$mpirun" 4 "$ranks" "${kind%%:*}" >"$dir/out" 2>&1 </dev/null &
    pid=$!
    ok "${kind%%:*}: the run ends" ended
    ok "... and the rank is named" said "$(who 2) ${kind#*:}"
done
echo "1..$n"
