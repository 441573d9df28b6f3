#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait usage: what slurmd's logs and sacct know of planned steps, and which
# jobs have flags. sacct is asked where slurmdbd and MariaDB are installed.
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2
cached
me=$(id -un)

# database: slurmdbd over a MariaDB of its own, and a slurmctld that reports to
# it. Slurm's prefix may have slurmdbd without what speaks to a database.
database()
{
    local plugins
    plugins=$(scontrol show config | sed -n 's/^PluginDir *= //p')
    command -v mariadbd slurmdbd >/dev/null &&
        [ -f "$plugins/accounting_storage_mysql.so" ]
}
start_database()
{
    local me log=$PWD/slurm/log
    me=$(id -un)
    mkdir db # slurmdbd makes its tables, and asks for no other
    setsid mariadbd --no-defaults --skip-grant-tables --user="$me" \
        --datadir="$PWD/db" --socket="$PWD/db.socket" --bind-address=127.0.0.1 --port=29306 \
        --innodb-buffer-pool-size=64M >>"$log/mariadb" 2>&1 &
    pids="$pids $!"
    until_true [ -S db.socket ] || return 1
    cat >slurm/slurmdbd.conf <<END
AuthType=auth/munge
AuthInfo=socket=$PWD/slurm/munge.socket
DbdHost=localhost
DbdPort=29819
SlurmUser=$me
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=29306
StorageUser=root
StorageLoc=plait
LogFile=$log/slurmdbd
PidFile=$PWD/slurmdbd.pid
END
    chmod 600 slurm/slurmdbd.conf
    setsid slurmdbd -D >"$log/slurmdbd.out" 2>&1 &
    pids="$pids $!"
    sed -i '/^AccountingStorageType=/d' slurm/slurm.conf
    printf '%s\n' AccountingStorageType=accounting_storage/slurmdbd \
        "AccountingStoragePass=$PWD/slurm/munge.socket" \
        AccountingStorageHost=localhost AccountingStoragePort=29819 \
        >>slurm/slurm.conf
    until_true sacctmgr -n show cluster || return 1
    sacctmgr -i add cluster plait
    sacctmgr -i add account physics Cluster=plait &&
        sacctmgr -i add user "$me" Account=physics Cluster=plait || return 1
    kill "$(cat slurm/slurmctld.pid)"
    until_true eval '! kill -0 "$(cat slurm/slurmctld.pid)" 2>/dev/null'
    setsid slurmctld -D -f "$PWD/slurm/slurm.conf" \
        >>"$log/slurmctld.out" 2>&1 &
    echo $! >slurm/slurmctld.pid
    until_true timeout 20 srun -Q -n1 true
}
# The cluster ends before its database does.
end()
{
    cluster stop "$work/slurm"
    [ -z "$pids" ] || { kill $pids; wait $pids; } 2>/dev/null
    rm -rf "$work"
}
pids=
trap end EXIT

# usage ARGUMENT...: what plait usage prints, with single blanks
usage()
{
    timeout 240 "$plait" usage "$@" 2>&1 | sed 's/  */ /g; s/ $//'
}
today=$(date +%F)

check "nothing was planned" is "0 planned steps" "$(usage)"
timeout 240 srun -Q -N2 --ntasks-per-node=2 --tp=2 true
timeout 240 srun -Q -N1 -n2 --tp=2 true
timeout 240 srun -Q -N1 -n2 true
cat >script <<'END'
#!/bin/bash
#SBATCH -N1 -n2 --tp=2
srun true
srun --tp=1 --dp=2 true
srun -n1 --tp=1 true
srun -n1 hostname
END
check "a batch job" batch script.out script
day=$(date +%F)
table="USER LAYOUT TASKS NODES STEPS LAST
$me --dp=1 1 1 1 $day
$me --dp=2 2 1 1 $day
$me --tp=2 2 1 2 $day
$me --tp=2 --dp=2 4 2 1 $day
5 planned steps"
[ "$today" = "$day" ] || table=$(usage) # it was midnight
check "slurmd's logs, each step once" is "$table" "$(usage)"
check "... by name" is "$table" "$(usage slurm/log/slurmd.node*)"
check "... from elsewhere" is "$table" \
    "$(cat slurm/log/slurmd.node* | sed 's/^/node9: /' | usage -)"
check "... of a day" is "$table" "$(usage --since "$today")"
check "... and none since then" is "0 planned steps" \
    "$(usage --since "$(date -d '+60 seconds' +%FT%T)")"
check "as JSON" is "5 false 4" "$(usage --json | jq -r \
    '[(.steps | length), .accounting, ([.steps[].tasks] | max)] | join(" ")')"
chmod 600 slurm/log/slurmd.node*
if [ "$(id -u)" = 0 ] && id nobody >/dev/null 2>&1; then
    cp "$(readlink -f "$top_builddir/plait")" plait
    as_nobody()
    {
        setpriv --reuid=nobody --regid=nogroup --clear-groups \
            "$work/plait" usage "$@" 2>&1
    }
    check "a user without rights gets a line" is \
        "plait: usage: $work/slurm/log/slurmd.node1: Permission denied; slurmd's\
 log is for administrators: run this as root" "$(as_nobody)"
    chmod 700 slurm/state
    check "... of --queued, too" like "$(as_nobody --queued)" \
        "^plait: usage: $work/slurm/state: Permission denied; .*SlurmUser$"
    # Debian's packages let all users look into it, but not into the folders.
    chmod 755 slurm/state
    check "... where the folder can be listed, too" like "$(as_nobody --queued)" \
        "^plait: usage: $work/slurm/state/hash.*: Permission denied; .*SlurmUser$"
else
    skip "a user without rights gets a line" "needs root"
fi

# Jobs that wait: one with flags, an array, one without, and an srun.
job=$(sbatch --parsable -H script)
array=$(sbatch --parsable -H -a 1-3 -n2 --tp=1 --rank-order=dp-tp-cp-ep-pp \
    --wrap true)
sbatch --parsable -H --wrap true >other
queued()
{
    usage --queued
}
check "jobs with flags" is "JOB USER STATE FLAGS
${array}_[1-3] $me PENDING --tp=1 --rank-order=dp-tp-cp-ep-pp
$job $me PENDING --tp=2" "$(queued)"
srun -Q -H -n2 --tp=2 true >srun.out 2>&1 &
waiting=$!
until_true eval '[ "$(squeue -h | wc -l)" = 4 ]'
check "... and what is not known" like "$(queued)" \
    "1 job is of srun or salloc, whose flags Slurm does not keep: ask the user."
check "... as JSON" is "2 1" "$(usage --queued --json |
    jq -r '[(.jobs | length), .others] | join(" ")')"
scancel "$job" "$array" "$(cat other)" $(squeue -h -o %i)
wait $waiting
check "... none" is "No batch job has flags." "$(until_true eval \
    '[ -z "$(squeue -h)" ]'; queued)"

if ! database; then
    skip "accounts and hours" "no slurmdbd with MariaDB"
    done_testing
fi
start_database >database.out 2>&1
check "a Slurm with accounts" is 0 $?
for log in slurm/log/slurmd.node*; do
    wc -l <"$log" >"before.${log##*.}"
done
timeout 240 srun -Q -A physics -N2 --ntasks-per-node=1 --tp=1 sleep 3
timeout 240 srun -Q -A physics -N1 -n2 --tp=2 true
# newest: the lines since then
newest()
{
    for log in slurm/log/slurmd.node*; do
        tail -n "+$(($(cat "before.${log##*.}") + 1))" "$log"
    done
}
accounts()
{
    newest | usage - >table
    is "USER ACCOUNT LAYOUT TASKS NODES STEPS NODE-HOURS LAST
$me physics --dp=2 2 2 1 0.00 $(date +%F)
$me physics --tp=2 2 1 1 0.00 $(date +%F)
2 planned steps" "$(cat table)"
}
check "accounts and hours" until_true accounts
# At least three seconds on two nodes; sacct counts whole ones.
check "... a step's seconds" like "$(newest | usage --json - |
    jq -c '[.accounting, (.steps[] | .elapsed_s)]')" '^\[true,([3-9]|[1-9][0-9]+),[0-9]+\]$'
check "... and steps before there were any" like "$(usage)" \
    "7 planned steps, of which sacct does not know 5"
kill ${pids##* }
wait ${pids##* } 2>/dev/null
# The database stays; slurmdbd is what sacct asks.
check "without slurmdbd there is a line" like "$(newest | usage -)" \
    "USER LAYOUT .*plait: usage: sacct: .*; accounts and hours are left out"
done_testing
