# SPDX-License-Identifier: Apache-2.0
# For tests of nodes with processes of their own, sourced after tap.sh: freezes
# all processes of a node by its cgroup, and thaws them again.
groups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
groups=$groups$(sed -n 's/^0:://p' /proc/self/cgroup)/plait.$$

# groups_of NODE...: move each node's processes, and all that they start later,
# to a cgroup; 1 if that is not permitted. To be called while no job runs.
groups_of()
{
    local node
    trap 'thaw "*"; clean_up; no_groups' EXIT
    for node in "$@"; do
        mkdir "$groups.$node" && [ -f "$groups.$node/cgroup.freeze" ] &&
            pgrep -P "$(cat "slurm/slurmd.$node.pid")" \
                >"$groups.$node/cgroup.procs" || return
    done 2>/dev/null
}

no_groups()
{
    local group
    for group in "$groups".*; do
        [ ! -d "$group" ] || within 10 rmdir "$group"
    done
}

freeze()
{
    echo 1 >"$groups.$1/cgroup.freeze" &&
        until_true grep -qx "frozen 1" "$groups.$1/cgroup.events"
}

# thaw NODE, or "*" for all
thaw()
{
    local group
    for group in "$groups".$1; do
        [ ! -f "$group/cgroup.freeze" ] || echo 0 >"$group/cgroup.freeze"
    done
}
