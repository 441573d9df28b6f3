# SPDX-License-Identifier: Apache-2.0
# For scripts to source. A script that does ends with echo "1..$n".
n=0

check() { # name status, which it returns
    n=$((n + 1))
    if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; fi
    [ "$2" = 0 ]
}
