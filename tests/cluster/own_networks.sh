# SPDX-License-Identifier: Apache-2.0
# For tests of nodes with networks and processes of their own, sourced before
# tap.sh: starts the test again in new namespaces, so that several such tests
# may run at once.
# usage: . own_networks.sh [tc], with tc if the test slows down links
if [ -z "${PLAIT_IN_NETNS:-}" ]; then
    unshare -n -m ip link add plait-probe type bridge 2>/dev/null &&
        unshare -n -u -p -m --fork --mount-proc true 2>/dev/null || {
        echo "1..0 # SKIP namespaces or bridges are not permitted here"
        exit 0
    }
    if [ "${1:-}" = tc ]; then
        command -v tc >/dev/null ||
            { echo "1..0 # SKIP no tc (iproute2)"; exit 0; }
        unshare -n sh -c 'ip link set lo up &&
            tc qdisc add dev lo root tbf rate 1mbit burst 32kb latency 50ms' \
            2>/dev/null || { echo "1..0 # SKIP tc is not permitted here"; exit 0; }
    fi
    exec env PLAIT_IN_NETNS=1 unshare -n -m bash "$0"
fi
ip link set lo up
