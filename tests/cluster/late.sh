# SPDX-License-Identifier: Apache-2.0
# For tests of nodes that are late: sourced in place of tap.sh, with its
# arguments. Nodes start no step while $TEST_HOLD/NODE exists. The test defines
# late: it starts a step, of which node2 is late, as $step, and returns when the
# others wait.
export TEST_HOLD=${TEST_HOLD:-$(mktemp -d "${TMPDIR:-/tmp}/plait-hold.XXXXXX")}
trap 'rm -rf "$TEST_HOLD"' EXIT
printf '%s\n' '#!/bin/sh' \
    "while [ -e $TEST_HOLD/\$SLURMD_NODENAME ]; do sleep 0.1; done" \
    >"$TEST_HOLD/prolog"
chmod 755 "$TEST_HOLD" "$TEST_HOLD/prolog"
. "$top_srcdir/tests/cluster/tap.sh" --conf "Prolog=$TEST_HOLD/prolog" "$@"
trap 'rm -f "$TEST_HOLD"/node*; clean_up; rm -rf "$TEST_HOLD"' EXIT

in_time()
{
    rm -f "$TEST_HOLD/node2"
    until_true eval '! kill -0 $step 2>/dev/null'
}

quiet()
{
    [ -z "$(steps)" ] && [ -z "$(squeue -h)" ]
}

# A step that waits for node2 is cancelled, or its srun is killed: nothing starts.
check_ends_of_late()
{
    late
    scancel --user="$(id -un)"
    check "a step that waits is cancelled" in_time
    wait $step
    check "... and no task has started" is "" "$(ls started.* 2>/dev/null)"
    check "... and nothing is left" until_true quiet

    late
    disown $step
    kill -KILL $step
    check "the nodes do not wait for an srun that is gone" \
        until_true eval '[ "$(steps | wc -w)" = 0 ]'
    rm -f "$TEST_HOLD/node2"
    scancel --user="$(id -un)"
    check "... start nothing" is "" "$(ls started.* 2>/dev/null)"
    check "... and leave nothing" until_true quiet
}
