# SPDX-License-Identifier: Apache-2.0
# For scripts to source that keep their files in $dir. A script that does ends
# with echo "1..$n". After a failed check, its output and the file $shown are
# printed.
n=0
shown=/dev/null

# ok WHAT COMMAND...
ok() {
    local what=$1
    shift
    n=$((n + 1))
    if "$@" >"$dir/check" 2>&1; then
        echo "ok $n - $what"
    else
        echo "not ok $n - $what"
        sed 's/^/# /' "$dir/check" "$shown"
    fi
}
