#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plait probe on one node and on four under two switches, and plait plan with
# the file that it writes. Times are given by probe_known.c, so that every
# figure is known; this machine is measured once, only to see that the probe
# ends as it should: on a busy machine the times may not grow with the messages.
# `make bench` measures.
plait=$top_builddir/plait
known=$top_builddir/tests/cli/probe_known
mpirun=$top_srcdir/tests/lib/mpirun.sh
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
LC_ALL=C PLAIT_SITE=
export LC_ALL PLAIT_SITE
unset SLURMD_NODENAME
. "$top_srcdir/tests/lib/check.sh"

# figure FILE KEY: the number, which must be given once
figure() {
    sed -n "s/^    $2: \([0-9.e+-]*\) #.*/\1/p" "$1"
}

# figures FILE KEY=WANT...: compare them, to 1 in 1000
figures() {
    file=$1
    shift
    for pair; do
        got=$(figure "$file" "${pair%%=*}")
        awk -v got="$got" -v want="${pair#*=}" 'BEGIN {
            exit !(got != "" && got - want <= want / 1000 &&
                want - got <= want / 1000) }' && continue
        echo "# want $pair, got '$got'"
        return 1
    done
}

refused() { # code text command...
    code=$1 text=$2
    shift 2
    timeout 240 "$@" >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ $got = "$code" ] && grep -qF "plait-probe: $text" "$tmp/err" &&
        [ "$(grep -c plait-probe: "$tmp/err")" = 1 ]
    check "refused: $text" $?
}

printf '%s\n' 'SwitchName=s0 Nodes=n[1-2]' 'SwitchName=s1 Nodes=n[3-4]' \
    'SwitchName=s2 Switches=s[0-1]' >"$tmp/topology.conf"

probe() { # ARGUMENT of mpirun.sh...
    timeout 240 sh "$mpirun" "$@" 2>"$tmp/err" && return
    cat "$tmp/err"
    return 1
}

timeout 240 sh "$mpirun" 4 "$plait" probe --device cpu --max-bytes 4194304 \
    --repeat 5 --out "$tmp/real.yaml" >"$tmp/out" 2>"$tmp/err"
case $? in
0) figure "$tmp/real.yaml" link_gbytes_s | awk '$1 > 0 { n++ } END { exit n != 1 }' ;;
1) [ ! -e "$tmp/real.yaml" ] &&
    grep -q 'the times do not grow with the messages' "$tmp/err" ;;
*) false ;;
esac
check 'this machine is measured, or the probe says that it cannot be' $?
PROBE_KNOWN_FALLING=1
export PROBE_KNOWN_FALLING
timeout 240 sh "$mpirun" 4 "$known" --device cpu --out "$tmp/falling.yaml" \
    >"$tmp/out" 2>"$tmp/err"
[ $? = 1 ] && [ "$(grep plait-probe: "$tmp/err")" = "plait-probe: node pair: \
the times do not grow with the messages; give a larger --max-bytes" ]
check 'it says so once when the times fall' $?
unset PROBE_KNOWN_FALLING
[ ! -e "$tmp/falling.yaml" ]
check 'and writes no file then' $?

probe 4 "$known" --device cpu --max-bytes 4194304 --repeat 5 \
    --out "$tmp/one.yaml"
check 'four ranks of a node' $?
grep -q '^  cpu:$' "$tmp/one.yaml" && grep -q '^    per_node: 4$' \
    "$tmp/one.yaml" && figures "$tmp/one.yaml" link_gbytes_s=20 link_us=1 &&
    ! grep -q nic_ "$tmp/one.yaml"
check 'a single node says nothing of the network' $?
echo 'gpu_types: {mine: {like: h100, nic_gbytes_s: 40}}' >"$tmp/own.yaml"
PLAIT_SITE=$tmp/own.yaml probe 2 "$known" --device cpu --max-bytes 4194304 \
    --repeat 5 --gpu-type Mine --out "$tmp/mine.yaml" &&
    grep -q '^gpu_type: mine$' "$tmp/mine.yaml" &&
    "$plait" plan --tp=2 --nodes=n1 --tasks-per-node=2 --site "$tmp/mine.yaml" |
    grep -q '^2 tasks on 1 node: tp=2'
check "a type of the site's own, in a file that is one" $?
refused 1 'no GPU type "mnie"' sh "$mpirun" 2 "$plait" probe --device cpu \
    --gpu-type mnie
refused 1 "$tmp/one.yaml: File exists; name another file and join the two by hand" \
    sh "$mpirun" 2 "$plait" probe --device cpu --out "$tmp/one.yaml"

node() { # NODE: two ranks that stand for it
    echo "-n 2 env SLURMD_NODENAME=$1 $known --device cpu
        --max-bytes 4194304 --repeat 5 --fabric $tmp/topology.conf
        --out $tmp/four.yaml"
}
first=$(node n1)
# shellcheck disable=SC2046
probe ${first#-n} : $(node n2) : $(node n3) : $(node n4)
check 'four nodes under two switches' $?
figures "$tmp/four.yaml" link_gbytes_s=20 link_us=1 nic_gbytes_s=10 nic_us=2 hop_us=4 \
    oversubscription=2
check 'links, network and switches have the figures of the times' $?
[ "$(grep -c '^# level [12], all ' "$tmp/four.yaml")" = 2 ] &&
    grep -q '^# level 1, 1 pair ' "$tmp/four.yaml" &&
    grep -q '^# rails all-reduce ' "$tmp/four.yaml"
check 'the table has both levels and the rails' $?

# The planner uses the file's figures: eight messages of a known size.
plan="$plait plan --tp=1 --pp=8 --dp=1 --nodes=n[1-4] --tasks-per-node=2
    --fabric=$tmp/topology.conf --json"
$plan --site "$tmp/four.yaml" >"$tmp/plan.json"
check 'plait plan reads the file' $?
if command -v python3 >/dev/null; then
    python3 - "$tmp/plan.json" "$(figure "$tmp/four.yaml" link_gbytes_s)" \
        "$(figure "$tmp/four.yaml" nic_gbytes_s)" \
        "$(figure "$tmp/four.yaml" nic_us)" \
        "$(figure "$tmp/four.yaml" hop_us)" \
        "$(figure "$tmp/four.yaml" oversubscription)" <<'PYTHON'
import json, sys
link, nic, us, hop, over = map(float, sys.argv[2:])
# Default traffic: 64 micro-batches of 4096 tokens, 4096 wide, in 16 bits, go
# forward and back, one message at a time leaving each node and each leaf. The
# slowest link determines the pace.
cost = json.load(open(sys.argv[1]))["cost"]["pp_s"]
pace = max(1 / link, 1 / (2 * nic), over / (4 * nic)) / 1e9
want = 2 * 64 * (1e-6 * (us + hop) + 2 * 4096 * 4096 * pace)
assert abs(cost / want - 1) < 1e-4, (cost, want)
PYTHON
    check 'and foretells the pipeline from its figures' $?
fi
"$plait" plan --tp=2 --nodes=n1 --tasks-per-node=2 --site "$tmp/one.yaml" |
    grep -q '^2 tasks on 1 node: tp=2'
check 'a file of one node is one, too' $?

refused 1 'one process has no links to measure' "$plait" probe --device cpu
refused 2 "--device must be auto, cuda or cpu, not 'gpu'" "$plait" probe \
    --device gpu
refused 2 '--max-bytes=1x: must be a whole number from 4096 to 4294967296' \
    "$plait" probe --max-bytes 1x
refused 2 "unknown option '--size'; see --help" "$plait" probe --size
refused 1 "--repeat is 4 on rank 1 ($(hostname)), but 3 on rank 0" sh "$mpirun" \
    1 "$plait" probe --device cpu --repeat 3 : \
    -n 1 "$plait" probe --device cpu --repeat 4
refused 1 'nowhere.conf: No such file or directory' sh "$mpirun" 2 "$plait" \
    probe --device cpu --fabric nowhere.conf
echo "1..$n"
