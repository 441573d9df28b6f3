#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait stuck on a trainer that keeps no records: the stacks show which rank is
# elsewhere; with Python's stacks if py-spy is installed.
set -u
top=$(cd "$top_builddir" && pwd)
src=$(cd "$top_srcdir" && pwd)
plait=$top/plait
. "$src/tests/lib/until.sh"
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
dir=$(mktemp -d) || exit 1
pid=
exec 2>/dev/null # of what is killed
trap 'kill -9 $pid $(living $(cat "$dir"/pid.* "$dir"/process.*)); wait
    rm -rf "$dir"' EXIT
. "$src/tests/lib/ok.sh"
cd "$dir" || exit 1
shown=$dir/out
mkfifo data.bin
exec 8<>data.bin

# stuck ARGS: run plait stuck; its output is in `out`
stuck() { "$top/plait-stuck" --wait 1 "$@" >out 2>&1; }

# settled ARGS: whether nothing has moved between its two looks
settled() { stuck "$@" && ! grep -q "it goes on" out; }

"$plait" run --np 4 --tp=2 --pin=none -- bash -c \
    'echo $$ >pid.$RANK; python3 -B "$@"; true' - "$src/tests/cli/stacks.py" \
    "$dir/data.bin" 1 >run.out 2>&1 </dev/null &
pid=$!
until_true eval '[ "$(ls | grep -c here)" = 4 ]'
# Without the kernel's wchan, which shows what a process sleeps in, no rank is
# known to wait.
case $(cat /proc/$pid/wchan 2>/dev/null) in
'' | 0)
    echo "1..0 # SKIP this kernel shows no wchan"
    exit 0
    ;;
esac
head="job [^ ]*: 4 ranks of python[^ ]*, by their stacks: rank 1 ([^ ]*, process [0-9]*) \
is elsewhere: "
reads="\(.*read of $dir/data.bin\|reads or writes a pipe\)"
mkdir bin # without py-spy
ln -s "$(command -v grep)" "$(command -v sleep)" bin/
PATH=$dir/bin until_true settled $pid
ok "the rank that does not wait is named" \
    grep -q "^$head$reads; 3 other ranks wait\$" out
ok "... and where the others are" grep -q "^  ranks 0,2-3: waits for messages" out
rank=$(sed -n 's/.*rank 1 ([^ ]*, process \([0-9]*\)).*/\1/p' out)
ok "its process, and none of its parents' or children's" \
    test "$(cat /proc/${rank:-0}/comm 2>/dev/null | cut -c1-6)" = python -a \
    "$(ps -o ppid= -p ${rank:-1} | tr -d ' ')" = "$(cat pid.1)"
if command -v py-spy >/dev/null && py-spy dump --pid "${rank:-0}" >/dev/null; then
    until_true settled $pid
    ok "Python's functions are named" grep -q \
        "^${head}load (stacks.py:[0-9]*)\(, read of .*\)\?; 3 other ranks wait" out
    ok "... and those of the others" \
        grep -q "^  ranks 2-3: all_reduce (stacks.py:[0-9]*)" out
else
    n=$((n + 2))
    echo "ok $((n - 1)) # SKIP no py-spy that may read a process"
    echo "ok $n # SKIP as above"
fi
kill -STOP $rank
until_true settled --pid $pid
ok "a rank that is stopped" grep -q "^job .*: 4 ranks of .*: rank 1 ([^ ]*, process \
$rank) is stopped by a signal; 3 other ranks wait" out
stuck 999999999
ok "a number that is nobody's is refused" test $? = 1
stuck "$dir/nothing"
ok "what is no number, too" test $? = 2
echo "1..$n"
