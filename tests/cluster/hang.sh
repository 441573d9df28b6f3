#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# With a driver that hangs, or a user who locks the cache, neither slurmd nor a
# step nor its end waits longer than plugstack.conf allows.
hang=$top_builddir/tests/unit/.libs/hang_hwloc.so
so=$top_builddir/.libs/spank_plait.so
[ -f "$hang" ] || { echo "1..0 # SKIP built without shared libraries"; exit 0; }
# exported because tap.sh may start this script again
export TEST_HANG_FILE=${TEST_HANG_FILE:-$(mktemp "${TMPDIR:-/tmp}/plait-hang.XXXXXX")}
trap 'rm -rf "$TEST_HANG_FILE"*' EXIT
cache=$TEST_HANG_FILE.cache
: >"$TEST_HANG_FILE.pids"
chmod 666 "$TEST_HANG_FILE.pids"
export LD_PRELOAD=$hang
# If slurmd waited for discovery, no node would register within tap.sh's minute.
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2 \
    --plugin "$so cache=$cache discovery-seconds=600"
trap 'rm -f "$TEST_HANG_FILE"; clean_up; rm -rf "$TEST_HANG_FILE"*' EXIT
unset LD_PRELOAD

# waiting: PIDs of the processes that have called the driver so far
waiting()
{
    sort -u "$TEST_HANG_FILE.pids"
}

# arguments ARGUMENT...: the plugin's arguments in plugstack.conf, for new steps
arguments()
{
    echo "required $so $*" >slurm/plugstack.new &&
        mv slurm/plugstack.new slurm/plugstack.conf
}

idle()
{
    [ "$(sinfo -h -N -o %T | sort -u)" = idle ] && [ -z "$(steps)" ]
}

gone()
{
    local pid
    for pid in $1; do
        [ ! -e "/proc/$pid" ] || return 1
    done
}

check "slurmd registers while its discovery hangs" \
    until_true [ -s "$TEST_HANG_FILE.pids" ]
slurmds=$(waiting)
check "... and has no child that is dead" is "" "$(ps -o stat=,pid= --ppid \
    "$(cat slurm/slurmd.node*.pid | paste -sd,)" | grep ^Z)"

arguments cache=none discovery-seconds=1
hangs='could not be discovered in 1 second '
if [ "$(timeout 240 srun -N1 -n1 --tp=1 true >out 2>&1; waiting)" = "$slurmds" ]
then
    # Since 25.05 step daemons have no environment to preload a library by.
    skip "a step's discovery hangs" "this Slurm preloads nothing into steps"
else
    check "a step whose discovery hangs" grep -q "$hangs" out
    check "... is refused in one line" refused "$hangs" \
        srun -N1 -n2 --tp=2 true
    arguments "cache=$cache" discovery-seconds=1
    check "... with a cache that slurmd could not write" \
        refused "$hangs" srun -N1 -n2 --tp=2 true
    arguments cache=none discovery-seconds=1 on-hang=unpinned
    check "... or starts unpinned" eval 'timeout 240 srun -N1 -n2 --tp=2 \
        bash -c "echo rank \$RANK:\$PLAIT_CPUS >unpinned.\$RANK" 2>out'
    check "... with its ranks" is "rank 0: rank 1:" "$(cat unpinned.? | xargs)"
    check "... and says so once" is 1 "$(
        grep -cE ': [a-z][^:]*start unpinned' out)"
    arguments cache=none discovery-seconds=5
    before=$(waiting)
    srun -N2 -n2 --tp=1 sleep 60 2>/dev/null &
    check "a step that hangs" until_true eval '[ "$(waiting)" != "$before" ]'
    scancel --user="$(id -un)"
    wait $!
    check "... ends by scancel, and its nodes are idle" until_true idle
    check "... and nobody waits any more" until_true gone \
        "$(waiting | grep -vxF "$slurmds")"
fi

rm "$TEST_HANG_FILE"
check "once the driver answers, slurmd's cache is written" \
    until_true [ -f "$cache/node.xml" ]
check "... and nobody is left" until_true gone "$(waiting)"
check "its lock is root's alone" is "600 $(id -u)" \
    "$(stat -c '%a %u' "$cache/node.lock")"

# Any user may do this, as the directory is readable for all.
arguments "cache=$cache" discovery-seconds=600
rm "$cache/node.xml"
exec 9<"$cache" && flock -s 9
check "any user may lock the directory" eval '! flock -n -x "$cache" true'
check "a locked directory holds nobody up" \
    timeout 240 srun -N1 -n2 --tp=2 bash -c '[ -n "$PLAIT_CPUS" ]'
check "... and the cache is written" [ -f "$cache/node.xml" ]
exec 9<&-
done_testing
