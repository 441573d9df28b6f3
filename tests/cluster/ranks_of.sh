# SPDX-License-Identifier: Apache-2.0
# For scripts to source that train with checkpoints in $work/NAME.ck.

# ranks NAME [NODE]: PIDs of the run's processes in this PID namespace
ranks()
{
    local one
    for one in $(pgrep -f "^[^ ]*plait-train c.yaml .*dir=$work/$1.ck"); do
        [ -n "${2:-}" ] && ! tr '\0' '\n' <"/proc/$one/environ" |
            grep -qx "SLURMD_NODENAME=$2" || echo "$one"
    done 2>/dev/null
}
