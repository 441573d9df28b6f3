# SPDX-License-Identifier: Apache-2.0
# For scripts to source.

# within SECONDS COMMAND...: repeat COMMAND until it succeeds; 1 if it has not
# by then
within()
{
    local tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $((tries--)) -gt 0 ] || return 1
        sleep 0.05
    done
}

# A test's processes have its TMPDIR (build-aux/time-limit).
export TMPDIR="${TMPDIR:-/tmp}"

# living PID...: those of these processes that run and are of this test. The
# number of one that has ended may be another process's by now.
living()
{
    local one
    for one; do
        ! grep -qzxsF "TMPDIR=$TMPDIR" "/proc/$one/environ" || echo "$one"
    done
}

# until_true COMMAND...: for what must happen in the end, however busy the
# machine is; 1 if it has not when it hangs for certain
until_true()
{
    within 240 "$@"
}

# at_step NAME STEPS: whether the run in the background, $pid, has done so many,
# or has ended without
at_step()
{
    [ "$(cat "$1.jsonl" | wc -l)" -ge "$2" ] || ! kill -0 "$pid"
}

# Wait for the run in the background, $pid; its exit status is in $status
ended()
{
    if until_true eval '! kill -0 "$pid"'; then
        wait "$pid"
        status=$?
        pid=
        return 0
    fi
    kill -9 $(pgrep -P "$pid" plait-train) "$pid"
    pid=
    status=hung
    return 1
}
