#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait run under Open MPI's mpirun over nodes with networks and host names of
# their own: how ranks find RANK 0, and by which secret they recognize each
# other. mpirun's "ssh" enters a node's namespaces.
. "$top_srcdir/tests/cluster/own_networks.sh"
command -v mpirun >/dev/null && mpirun --version 2>/dev/null |
    grep -q 'Open MPI) 4' ||
    { echo "1..0 # SKIP no mpirun of Open MPI 4"; exit 0; }
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
top_srcdir=$(cd "$top_srcdir" && pwd)
top_builddir=$(cd "$top_builddir" && pwd)
plait=$top_builddir/plait
unset "${!SLURM_@}" "${!PLAIT_@}" "${!OMPI_COMM_@}" "${!PMI_@}" MASTER_PORT \
    MASTER_ADDR "${!FLUX_@}" PBS_NODEFILE 2>/dev/null
export PLAIT_SITE=
. "$top_srcdir/tests/lib/check.sh"
. "$top_srcdir/tests/lib/until.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/plait.XXXXXX") || exit 99
export TMPDIR=$work XDG_CACHE_HOME=$work
trap 'kill $(cat "$work"/*.pid) 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 99

is() { # name want got
    [ "$2" = "$3" ]
    check "$1" $?
    [ "$2" = "$3" ] || printf 'want: %s\ngot:  %s\n' "$2" "$3" | sed 's/^/# /'
}

# The node of mpirun itself, and three other nodes.
{
    printf '127.0.0.1 localhost\n10.97.0.1 head\n'
    printf '10.97.0.%d n0%d-ib\n' 8 8 9 9
    echo 10.97.0.10 n10-ib
} >hosts
mount --bind hosts /etc/hosts
ip link add br0 type bridge && ip link set br0 up &&
    ip address add 10.97.0.1/24 dev br0 || exit 99
for node in n08-ib n09-ib n10-ib; do
    unshare -n -u sh -c 'hostname "$0" && echo $$ >"$0.new" &&
        mv "$0.new" "$0.pid" && exec sleep 1000' $node &
    until_true [ -s $node.pid ]
    pid=$(cat $node.pid)
    ip link add "v$node" type veth peer name eth0 netns "$pid" &&
        ip link set "v$node" master br0 up || exit 99
    nsenter -t "$pid" -n sh -c "ip link set lo up; ip link set eth0 up
        ip address add $(awk -v n=$node '$2 == n { print $1 }' hosts)/24 dev eth0"
done
cat >agent <<'END'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
node=$1
shift
exec nsenter -t "$(cat "${0%/*}/$node.pid")" -n -u sh -c "$*"
END
chmod 755 agent

# over HOSTS RANKS COMMAND...: run mpirun on a machine called head
over()
{
    local hosts=$1
    shift
    OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=10.97.0.0/24 \
        OMPI_MCA_oob_tcp_if_include=10.97.0.0/24 \
        timeout 240 unshare -u sh -c 'hostname head && exec "$@"' sh \
        bash "$top_srcdir/tests/lib/mpirun.sh" "$1" --host "$hosts" \
        --mca plm_rsh_agent "$work/agent" "${@:2}" 2>&1 |
        grep -v 'plm:rsh: Warning: setpgid'
}

told='echo "$RANK $NODE_RANK $(hostname) $MASTER_ADDR"'
is "three nodes find RANK 0" "0 0 n08-ib n08-ib
1 0 n08-ib n08-ib
2 1 n09-ib n08-ib
3 1 n09-ib n08-ib
4 2 n10-ib n08-ib
5 2 n10-ib n08-ib" "$(over n08-ib:2,n09-ib:2,n10-ib:2 6 "$plait" run --tp=2 \
    sh -c "$told" | sort)"
is "... also where mpirun's own is one of them" "0 0 head head
1 0 head head
2 1 n09-ib head
3 1 n09-ib head" "$(over head:2,n09-ib:2 4 "$plait" run --tp=2 \
    sh -c "$told" | sort)"
secret()
{
    over n08-ib:2,n10-ib:2 4 "$plait" run --tp=2 sh -c \
        'echo $PLAIT_SECRET $MASTER_PORT' | sort | uniq -c
}
first=$(secret)
[[ $first =~ ^\ *4\ [0-9a-f]{32}\ [0-9]+$ ]]
check "all ranks have one secret and one port" $?
[ "$first" != "$(secret)" ]
check "... which no other run has" $?
is "MASTER_ADDR of the user's own is kept" "4 10.97.0.8" \
    "$(export MASTER_ADDR=10.97.0.8
    over n08-ib:2,n09-ib:2 4 "$plait" run --tp=2 sh -c 'echo $MASTER_ADDR' |
        sort | uniq -c | xargs)"

# Ranks that communicate over sockets prove to each other that they know the
# secret.
if [ -x "$top_builddir/plait-train" ]; then
    python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2
    over n08-ib:1,n09-ib:1 2 "$plait" run --tp=1 "$top_builddir/plait-train" \
        c.yaml --set train.steps=3 --comm socket --metrics m.jsonl >out
    is "plait-train trains over them" "1 2 3" "$(python3 -c 'import json
print(*(json.loads(line)["step"] for line in open("m.jsonl")))' 2>&1 ||
        cat out)"
else
    check "plait-train trains over them # SKIP not built" 0
fi
echo "1..$n"
