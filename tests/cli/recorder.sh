#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait stuck names the rank that others wait for, from the dumps that torch's
# flight recorder wrote for any trainer.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C TZ=UTC
. "$top_srcdir/tests/lib/check.sh"
stuck=$(cd "$top_builddir" && pwd)/plait-stuck
make=$(cd "$top_srcdir" && pwd)/tests/cli/recorder.py
cd "$tmp" || exit 1
says() { # WAY PATTERN
    python3 "$make" "$1" "$1." && "$stuck" --recorder "$1." >out 2>&1
    local rc=$?
    grep -q "$2" out || rc=1
    check "$1: $(cat out)" $rc
}
says loader '^4 ranks: rank 2 never entered all-reduce 4 of its [td]p group; it is in code of its own since .* (after train.py:77, step); 3 other ranks wait since'
says skips '^4 ranks: rank 3 never entered all-reduce 4 of its tp group; it waits in all-reduce 4 of its dp group; 3 other ranks wait'
says sizes '^4 ranks: rank 1 entered an all-reduce of 2000 bytes where rank 0 is in all-reduce 4 of their tp group, of 4000 bytes'
says missing '^4 ranks: rank 2 never entered all-reduce 4 of its [td]p group; it left nothing to read; 3 other ranks wait'
says message '^4 ranks: rank 2 never entered '
head -c 300 loader.2 >cut.0
"$stuck" --recorder cut. >out 2>&1
[ $? = 1 ] && [ "$(wc -l <out)" = 1 ]
rc=$?
check "a damaged dump: $(cat out)" $rc
python3 -c 'import pickle; pickle.dump([1], open("odd.0", "wb"))'
"$stuck" --recorder odd. >out 2>&1
[ $? = 1 ] && grep -q 'odd.0 is not a dump of torch' out
rc=$?
check "another pickle: $(cat out)" $rc
"$stuck" --recorder none. >out 2>&1
[ $? = 1 ] && grep -q 'there is no none.0, none.1, ...$' out
rc=$?
check "no dump: $(cat out)" $rc
# Dumps lie in /tmp, where others can plant files of the same name.
ln -s "$tmp/loader.1" link.1
"$stuck" --recorder link. >out 2>&1
[ $? = 1 ] && grep -q 'link.1 cannot be read, or is not a dump' out
rc=$?
check "a link is no dump: $(cat out)" $rc
mkfifo pipe.1
timeout 240 "$stuck" --recorder pipe. >out 2>&1
[ $? = 1 ] && grep -q 'pipe.1 cannot be read, or is not a dump' out
rc=$?
check "a pipe is not waited for: $(cat out)" $rc
if [ "$(id -u)" = 0 ]; then
    chown 65534 loader.3
    "$stuck" --recorder loader. >out 2>&1
    [ $? = 1 ] && grep -q 'belongs to user .*; those of a run have one owner' out
    rc=$?
    check "dumps of two users are not one run: $(cat out)" $rc
else
    check "only root can give files away # SKIP" 0
fi
echo "1..$n"
