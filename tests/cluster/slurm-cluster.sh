#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A private Slurm cluster on this machine: its own munged, slurmctld and one
# slurmd per node, everything under one directory, nothing under /etc.
usage()
{
    cat <<'END'
usage: slurm-cluster.sh start DIR [--nodes N] [--gpus G] [--cpus C]
                                  [--gpu-type T] [--plugin FILE]
                                  [--conf LINE]... [--file F]...
                                  [--netns yes] [--timeout S]
       slurm-cluster.sh restart DIR NODE...
       slurm-cluster.sh steps DIR
       slurm-cluster.sh ended DIR
       slurm-cluster.sh stop DIR
       slurm-cluster.sh env DIR

start  a cluster of N nodes (4) named node1.. with G declared GPUs (2), of
       type T, and C processors (2 * G, at least 4) each, under a tree of two
       leaf switches. FILE is a SPANK plugin with its arguments, or nothing.
       LINE goes into slurm.conf, and F beside it. Does nothing where the cluster in DIR runs.
       A node that does not answer for S seconds (30) is down.
       With --netns each node has namespaces of its own: network (on a bridge
       plait0 in the caller's), host name, processes, mounts, /dev/shm.
restart  the slurmd of each NODE, and wait until Slurm sees them.
steps    prints the process ids of its step daemons.
ended    prints what Slurm's daemons that run no more have logged last.
stop   it, with all its jobs, and keep only the logs.
env    print the exports a shell needs:  eval "$(slurm-cluster.sh env DIR)"

SLURM_PREFIX=DIR takes the Slurm installed in DIR instead of the system's.
END
}

set -u
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
[ -z "${SLURM_PREFIX:-}" ] ||
    PATH=$SLURM_PREFIX/bin:$SLURM_PREFIX/sbin:$PATH
export PATH
unset SLURM_CONF

die()
{
    echo "slurm-cluster: $*" >&2
    exit 1
}

# Start a daemon that does not hold pipes or locks of the caller.
daemon()
{
    local log=$1 pidfile=$2 fd
    shift 2
    (
        for fd in /proc/self/fd/*; do
            fd=${fd##*/}
            [ "$fd" -le 2 ] || [ "$fd" = 255 ] || eval "exec $fd>&-"
        done 2>/dev/null
        exec setsid "$@"
    ) </dev/null >>"$log" 2>&1 &
    echo $! >"$pidfile"
    disown
    # On a busy machine the child may not have executed the daemon yet.
    until alive "$pidfile" || ! kill -0 $!; do
        sleep 0.01
    done 2>/dev/null
}

# Whether the process of this pid file is still the one that was started.
alive()
{
    local pid
    pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] &&
        tr '\0' ' ' 2>/dev/null </proc/$pid/cmdline | grep -qF "$dir/"
}

. "$(dirname "$(readlink -f "$0")")/../lib/until.sh"

# Find a base such that base .. base+N are free, below the ephemeral ports.
free_ports()
{
    local n=$1 base used try
    used=$(awk 'FNR > 1 { sub(/.*:/, "", $2); print $2 }' \
        /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        while read -r hex; do echo $((16#$hex)); done)
    for try in 1 2 3 4 5 6 7 8 9 10; do
        base=$((10000 + (RANDOM * 32768 + RANDOM) % (22000 - n)))
        awk -v lo=$base -v hi=$((base + n)) \
            '$1 >= lo && $1 <= hi { bad = 1 } END { exit bad }' \
            <<<"$used" && echo $base && return
    done
    return 1
}

need_programs()
{
    local p
    for p in munged slurmctld slurmd scontrol srun setsid; do
        command -v $p >/dev/null ||
            die "$p not found; install slurmctld slurmd slurm-client munge"
    done
    # munge and Slurm put sockets here; their names end at 107 characters
    [ ${#dir} -le 70 ] || die "the name $dir is too long for a socket"
}

# Not every Slurm is built with PMIx; Open MPI 4.1 needs it.
mpi_default()
{
    SLURM_CONF=$dir/slurm.conf srun --mpi=list 2>&1 |
        grep -qw pmix && echo MpiDefault=pmix
}

write_topology()
{
    local i leaf0='' leaf1=''
    for i in $(seq 1 2 "$nodes"); do leaf0=$leaf0,node$i; done
    for i in $(seq 2 2 "$nodes"); do leaf1=$leaf1,node$i; done
    # numbers are spread over the switches, as in real machine rooms
    echo "SwitchName=leaf0 Nodes=${leaf0#,}"
    [ -z "$leaf1" ] || echo "SwitchName=leaf1 Nodes=${leaf1#,}"
    [ -z "$leaf1" ] || echo "SwitchName=spine Switches=leaf[0-1]"
}

node_address()
{
    if [ $netns = yes ]; then
        echo "NodeHostname=node$1 NodeAddr=$(node_ip "$1")"
    else
        echo "NodeHostname=localhost NodeAddr=127.0.0.1"
    fi
}

node_ip()
{
    echo "10.99.$((($1 + 1) / 256)).$((($1 + 1) % 256))"
}

write_conf()
{
    local i base me
    me=$(id -un)
    base=$(free_ports "$nodes") || die "no $nodes free ports in a row"
    # A job's MASTER_PORT depends on its number: clusters that run at the same
    # time on this machine must begin with different numbers. Sites with many
    # jobs are beyond a million.
    cat <<END
ClusterName=plait
SlurmctldHost=$(hostname -s)($([ $netns = yes ] && echo 10.99.0.1 ||
    echo 127.0.0.1))
SlurmctldPort=$base
FirstJobId=$((2000000 + base))
MinJobAge=3600
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$dir/munge.socket,cred_expire=20
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
TmpFS=$dir/tmp.%n
SlurmctldPidFile=$dir/state/slurmctld.pid
SlurmdPidFile=$dir/spool.%n/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/slurmd.%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
TopologyPlugin=topology/tree
PlugStackConfig=$dir/plugstack.conf
SlurmctldTimeout=30
SlurmdTimeout=$timeout
MessageTimeout=60
TCPTimeout=20
KillWait=2
InactiveLimit=0
ReturnToService=2
MailProg=/bin/true
GresTypes=gpu
END
    [ ${#conf[@]} -eq 0 ] || printf '%s\n' "${conf[@]}"
    for i in $(seq "$nodes"); do
        echo "NodeName=node$i $(node_address "$i")" \
            "Port=$((base + i)) CPUs=$cpus State=UNKNOWN" \
            "RealMemory=4096${gpus:+ Gres=gpu:${type:+$type:}$gpus}"
    done
    echo "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
}

# Slurm counts GPUs as character devices. Any device will do here, and a link to
# one needs no privilege.
make_gpus()
{
    local i
    for i in $(seq 0 $((gpus - 1))); do
        ln -s /dev/null "$dir/gpu$i"
    done
    echo "AutoDetect=off"
    echo "Name=gpu ${type:+Type=$type }File=$dir/gpu[0-$((gpus - 1))]"
}

start_munged()
{
    # munged requires that its key is private
    dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 2>/dev/null
    chmod 400 "$dir/munge.key"
    daemon "$dir/log/munged.out" "$dir/munged.pid" \
        munged --foreground --force --key-file="$dir/munge.key" \
        --socket="$dir/munge.socket" --pid-file="$dir/munged.munge.pid" \
        --log-file="$dir/log/munged" --seed-file="$dir/munge.seed" \
        --num-threads=4
    until_true munge -n --socket="$dir/munge.socket" -o /dev/null ||
        die "munged does not answer, see $dir/log/munged.out"
}

# What runs as the first process of node $1, with the address $3.
node_init='
    hostname "$1"
    mount -t tmpfs tmpfs /dev/shm
    mount --bind "$2/hosts" /etc/hosts
    ip link set lo up
    until ip link set eth0 up 2>/dev/null; do sleep 0.02; done
    ip address add "$3/16" dev eth0
    exec slurmd -D -N "$1" -f "$2/slurm.conf"'

start_node()
{
    local pid i=${1#node}
    daemon "$dir/log/slurmd.$1.out" "$dir/slurmd.$1.pid" \
        unshare -n -u -p -m --fork --kill-child --mount-proc \
        bash -c "$node_init" "$dir/" "$1" "$dir" "$(node_ip "$i")"
    pid=$(cat "$dir/slurmd.$1.pid")
    until [ "$(readlink /proc/$pid/ns/net)" != \
        "$(readlink /proc/self/ns/net)" ]; do
        sleep 0.01
    done
    ip link delete "veth$i" 2>/dev/null
    ip link add "veth$i" type veth peer name eth0 netns "$pid" &&
        ip link set "veth$i" master plait0 up
}

make_bridge()
{
    local i
    ip link add plait0 type bridge && ip link set plait0 up &&
        ip address add 10.99.0.1/16 dev plait0 || die "no bridge plait0"
    echo 127.0.0.1 localhost >"$dir/hosts"
    for i in $(seq "$nodes"); do
        echo "$(node_ip "$i") node$i"
    done >>"$dir/hosts"
}

start_slurmd()
{
    [ ! -f "$dir/hosts" ] || { start_node "$1"; return; }
    daemon "$dir/log/slurmd.$1.out" "$dir/slurmd.$1.pid" \
        slurmd -D -N "$1" -f "$dir/slurm.conf"
}

start_slurm()
{
    local i
    daemon "$dir/log/slurmctld.out" "$dir/slurmctld.pid" \
        slurmctld -D -f "$dir/slurm.conf"
    for i in $(seq "$nodes"); do
        mkdir -p "$dir/spool.node$i"
        mkdir -p -m 1777 "$dir/tmp.node$i"
        start_slurmd "node$i"
    done
    until_true eval 'all_idle || ! all_alive'
    all_idle && return
    ended >&2
    die "the nodes do not come up, see $dir/log/"
}

# What Slurm's daemons that run no more have logged last.
ended()
{
    local f name
    for f in "$dir"/slurm*.pid; do
        name=${f##*/}
        alive "$f" || tail -n 5 "$dir/log/${name%.pid}"{.out,}
    done
    # At a first start there is no state to read.
    grep error: "$dir"/log/slurm* | grep -v 'state file\|backup state' |
        sed "s:^$dir/log/::" | tail -n 20
}

all_alive()
{
    local f
    for f in "$dir"/slurm*.pid; do
        alive "$f" || return 1
    done
}

all_idle()
{
    [ "$(SLURM_CONF=$dir/slurm.conf sinfo -h -N -t idle -o %N |
        sort -u | wc -l)" = "$nodes" ]
}

start()
{
    nodes=4 gpus=2 type='' cpus='' plugin='' conf=() files=() netns=no
    timeout=30
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || die "$1 needs a value"
        case $1 in
        --nodes) nodes=$2 ;;
        --gpus) gpus=$2 ;;
        --gpu-type) type=$2 ;;
        --cpus) cpus=$2 ;;
        --plugin) plugin=$2 ;;
        --conf) conf+=("$2") ;;
        --file) files+=("$2") ;;
        --netns) netns=$2 ;;
        --timeout) timeout=$2 ;;
        *) die "unknown option $1" ;;
        esac
        shift 2
    done
    [[ $nodes =~ ^[1-9][0-9]{0,2}$ ]] || die "--nodes takes 1 to 999"
    [[ $gpus =~ ^[0-9]{1,2}$ ]] || die "--gpus takes 0 to 99"
    [[ $timeout =~ ^[1-9][0-9]{0,4}$ ]] || die "--timeout takes 1 to 99999"
    [ -n "$cpus" ] || cpus=$((gpus > 2 ? 2 * gpus : 4))
    need_programs
    alive "$dir/slurmctld.pid" && alive "$dir/munged.pid" && return
    stop
    mkdir -p "$dir/state" "$dir/log"
    [ ${#files[@]} = 0 ] || cp "${files[@]}" "$dir" || exit 1
    chmod 755 "$dir"
    trap 'rc=$?; [ $rc = 0 ] || stop' EXIT
    : >"$dir/plugstack.conf"
    [ -z "$plugin" ] || echo "required $plugin" >"$dir/plugstack.conf"
    if [ "$gpus" -gt 0 ]; then
        make_gpus >"$dir/gres.conf"
    else
        gpus=
        : >"$dir/gres.conf"
    fi
    printf 'CgroupPlugin=cgroup/v1\nConstrainCores=no\n' >"$dir/cgroup.conf"
    write_topology >"$dir/topology.conf"
    write_conf >"$dir/slurm.conf" || exit 1
    mpi_default >>"$dir/slurm.conf"
    [ $netns = no ] || make_bridge
    start_munged
    start_slurm
}

restart()
{
    local node began
    # Slurm reports times in whole seconds, and a slurmd may have started in
    # this one.
    began=$(($(date +%s) + 1))
    until [ "$(date +%s)" -ge $began ]; do
        sleep 0.05
    done
    for node in "$@"; do
        stop_daemons "$dir/slurmd.$node.pid"
        start_slurmd "$node"
    done
    for node in "$@"; do
        until_true registered "$node" "$began" ||
            die "$node does not come back, see $dir/log/"
    done
}

# registered NODE SECONDS: whether NODE has registered since then and is not
# down
registered()
{
    local line start
    line=$(SLURM_CONF=$dir/slurm.conf scontrol -o show node "$1")
    start=${line#*SlurmdStartTime=}
    [ "$(date -d "${start%% *}" +%s)" -ge "$2" ] &&
        [[ ! $line =~ State=[A-Z+]*(DOWN|NOT_RESPONDING) ]]
}

# PIDs of this cluster's step daemons. They are not children of slurmd, and
# newer versions have no environment; but they log to the same place as their
# slurmd.
stepds()
{
    local pid
    for pid in $(pgrep -x slurmstepd); do
        readlink /proc/$pid/fd/* | grep -qF "$dir/log/" && echo $pid
    done 2>/dev/null
}

# PIDs of the step daemons and of their tasks.
step_pids()
{
    local f
    stepds
    for f in $(grep -lzxF "SLURM_CONF=$dir/slurm.conf" \
        /proc/[0-9]*/environ 2>/dev/null); do
        if grep -qz '^SLURMD_NODENAME=' "$f"; then
            f=${f#/proc/}
            echo "${f%/environ}"
        fi
    done 2>/dev/null
}

stop_daemons()
{
    local f
    for f in "$@"; do
        alive "$f" && kill "$(cat "$f")"
    done
    for f in "$@"; do
        if alive "$f"; then
            within 10 eval "! alive '$f'" || kill -KILL "$(cat "$f")"
        fi
        rm -f "$f"
    done
}

stop()
{
    local pids
    [ -d "$dir" ] || return 0
    if alive "$dir/slurmctld.pid"; then
        SLURM_CONF=$dir/slurm.conf timeout 10 scancel --user="$(id -un)"
        within 5 eval '[ -z "$(step_pids)" ]'
    fi
    # Nodes with namespaces of their own end as if they lost power.
    [ ! -f "$dir/hosts" ] || kill -KILL $(cat "$dir"/slurmd.*.pid)
    stop_daemons "$dir"/slurmd.*.pid
    [ ! -f "$dir/hosts" ] || ip link delete plait0
    pids=$(step_pids)
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
    stop_daemons "$dir/slurmctld.pid" "$dir/munged.pid"
    rm -rf "$dir"/state "$dir"/cache "$dir"/spool.* "$dir"/tmp.* \
        "$dir"/munge.* "$dir"/gpu* "$dir"/hosts "$dir"/*.conf
}

# For Open MPI 4.1: tcp through ob1 fails in some runs with many ranks on one
# machine, and vader's files of several "nodes" collide in /dev/shm. On a busy
# machine UCX complains on stdout of a peer that left first.
print_env()
{
    [ -f "$dir/slurm.conf" ] || die "no cluster in $dir; start it first"
    cat <<END
export SLURM_CONF='$dir/slurm.conf'
export PATH='$PATH'
export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx
export OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any
export UCX_TLS=tcp,self UCX_NET_DEVICES=lo UCX_LOG_FILE=stderr
export OMPI_MCA_mpi_yield_when_idle=1
END
}

[ $# -ge 2 ] || { usage >&2; exit 2; }
verb=$1
mkdir -p "$(dirname "$2")" && dir=$(cd "$(dirname "$2")" && pwd)/${2##*/} ||
    exit 1
shift 2
case $verb in
start) start "$@" ;;
restart) restart "$@" ;;
steps) stepds ;;
ended) ended ;;
stop) stop ;;
env) print_env ;;
*) usage >&2; exit 2 ;;
esac
