# SPDX-License-Identifier: Apache-2.0
# What the cluster tests share: TAP, and one cluster per test, in a directory
# that goes away with it. Source it with the cluster's options as arguments.
set -u
# Clusters run beside each other, and with what else the machine does: where
# that is allowed, each gets a network, and so all the ports, of its own. Slurm
# asks for names only where there is more than a loopback address.
if [ -z "${PLAIT_IN_NETNS:-}" ] && unshare -n ip link set lo up 2>/dev/null
then
    export PLAIT_IN_NETNS=1
    exec unshare -n sh -c 'ip link set lo up && ip address add 10.98.0.1 dev lo
        exec bash "$0"' "$0"
fi
tap_count=0
tap_failed=0
here=$top_srcdir/tests/cluster
plugin=$top_builddir/.libs/spank_plait.so
plait=$top_builddir/plait

# check DESCRIPTION COMMAND...
check()
{
    local what=$1 out
    shift
    tap_count=$((tap_count + 1))
    if out=$("$@" 2>&1); then
        echo "ok $tap_count - $what"
    else
        echo "not ok $tap_count - $what"
        { printf '%s\n' "$out"; cluster ended "$work/slurm"; } |
            sed 's/^/# /'
        tap_failed=1
    fi
}

skip()
{
    tap_count=$((tap_count + 1))
    echo "ok $tap_count - $1 # SKIP $2"
}

done_testing()
{
    echo "1..$tap_count"
    exit $tap_failed
}

# is WANT GOT
is()
{
    [ "$1" = "$2" ] && return
    printf 'want: %s\ngot:  %s\n' "$1" "$2"
    return 1
}

# like TEXT PATTERN
like()
{
    [[ $1 =~ $2 ]] && return
    printf 'no "%s" in:\n%s\n' "$2" "$1"
    return 1
}

. "$top_srcdir/tests/lib/until.sh"
. "$top_srcdir/tests/lib/tier.sh" # before all PLAIT_ variables go

# refused PATTERN COMMAND...: fails, says PATTERN in one line of plait's
refused()
{
    local pattern=$1 out rc
    shift
    out=$(timeout 240 "$@" 2>&1)
    rc=$?
    [ $rc != 0 ] && [ $rc != 124 ] || { echo "exit status $rc"; return 1; }
    is 1 "$(grep -c 'plait:' <<<"$out")" && like "$out" "$pattern"
}

# batch FILE ARGUMENT...: a batch job to its end, its output in FILE. Fails, and
# prints that, where the job or one of its array does. (sbatch -W looks at the
# job's state after 2 s at the earliest.)
batch()
{
    local out=$1 job state
    shift
    job=$(timeout 240 sbatch --parsable -o "$out" "$@") || return 1
    until_true has_ended "$job" && state=$(scontrol -o show job "$job") &&
        ! grep -v ' ExitCode=0:0 ' <<<"$state" && return
    cat "$out"
    return 1
}
# A controller that does not answer has said nothing of the job.
has_ended()
{
    local rows
    rows=$(squeue -h -j "$1") && [ -z "$rows" ]
}

# by_rank SRUN_ARGUMENT...: what the tasks of an srun print, sorted. Each has a
# file of its own on its node: a pipe mixes lines, and srun closes its tasks'
# connections unread where one was killed (docs/testing.md).
by_rank()
{
    local rc
    rm -f "$work"/by_rank.*
    timeout 240 srun -Q --output="$work/by_rank.%t" "$@" 2>&1
    rc=$?
    sort "$work"/by_rank.*
    [ $rc = 0 ] || echo "srun: exit status $rc"
}

# Pids of the cluster's step daemons.
steps()
{
    cluster steps "$work/slurm"
}

# plugstack_of NODE [LINE]: the node's plugstack.conf is LINE; without it, as
# where nobody installed the plugin
plugstack_of()
{
    printf '%s\n' "${2:-}" >"slurm/plugstack.$1"
    sed "s:^PlugStackConfig=.*:PlugStackConfig=$PWD/slurm/plugstack.$1:" \
        slurm/slurm.conf >"slurm/slurm.$1"
    kill "$(cat "slurm/slurmd.$1.pid")"
    until_true eval '! kill -0 "$(cat "slurm/slurmd.'"$1"'.pid")" 2>/dev/null'
    setsid slurmd -D -N "$1" -f "$PWD/slurm/slurm.$1" >/dev/null 2>&1 &
    echo $! >"slurm/slurmd.$1.pid"
    until_true timeout 20 srun -Q -w "$1" -n1 true
}

cluster()
{
    "$here/slurm-cluster.sh" "$@"
}

clean_up()
{
    cluster stop "$work/slurm"
    rm -rf "$work"
}

for p in munged slurmctld slurmd srun; do
    PATH=$PATH:/usr/sbin:/sbin command -v $p >/dev/null ||
        [ -x "${SLURM_PREFIX:-/nonexistent}/sbin/$p" ] ||
        { echo "1..0 # SKIP no $p: Slurm or munge is not installed"; exit 0; }
done
[ -f "$plugin" ] || { echo "1..0 # SKIP built without Slurm"; exit 0; }
prefix=${SLURM_PREFIX:-}
unset "${!SLURM_@}" "${!SBATCH_@}" "${!SALLOC_@}" "${!PLAIT_@}" 2>/dev/null
[ -z "$prefix" ] || export SLURM_PREFIX=$prefix
work=$(mktemp -d "${TMPDIR:-/tmp}/plait.XXXXXX") || exit 99
chmod 755 "$work"
export XDG_CACHE_HOME=$work # trainings remember the machine's peak there
trap clean_up EXIT
cluster start "$work/slurm" --plugin "$plugin cache=$work/slurm/cache" "$@" ||
    { echo "Bail out! no cluster"; exit 99; }
eval "$(cluster env "$work/slurm")"
cd "$work" || exit 99
# With its default, mixed fences, Slurm's PMIx lets a rank out of MPI_Init while
# another is in its first fence, where Open MPI 4.1 takes no message: it crashes.
# With tree fences a step on some nodes of its job hangs (docs/testing.md).
export SLURM_PMIX_FENCE=ring

# cached [DIR]: slurmd writes its cache, but nobody waits for that
cached()
{
    until_true [ -f "${1:-slurm/cache}/node.xml" ]
}
