# SPDX-License-Identifier: Apache-2.0
# For scripts to source.

# until_true SECONDS COMMAND...: 1 if COMMAND has not succeeded by then
until_true()
{
    local tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $((tries--)) -gt 0 ] || return 1
        sleep 0.05
    done
}
