#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-train over an emulated NCCL that does not connect ranks: the run ends
# soon, and one line says which rank and what.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
unset PLAIT_NCCL_WINDOWS # as a user has it
plait=$top_builddir/plait
export OMP_NUM_THREADS=1 EMULATED_GPUS=4 PLAIT_NCCL_TIMEOUT=6
unset CUDA_VISIBLE_DEVICES NCCL_SOCKET_IFNAME
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out

"$top_builddir/plait-prep" "$top_srcdir/LICENSE" --out "$dir/data" >/dev/null ||
    exit 99
cat >"$dir/c.yaml" <<END
model: {family: gpt2, layers: 2, hidden: 32, heads: 2, vocab: 257, seq_len: 8}
data: {train: "$dir/data/train.bin"}
train: {steps: 8, global_batch: 4, micro_batch: 1, seed: 7, phase_timeout: 30}
END

# train LAYOUT RANK WORDS: of two ranks, RANK (or all) has EMULATED_NCCL=WORDS
train() {
    timeout -k 9 240 "$plait" run --np 2 --pin=none "$1" -- sh -c '
        who=$0 words=$1
        shift
        [ -z "$lone" ] ||
            export CUDA_VISIBLE_DEVICES=$PLAIT_LOCAL_RANK LOCAL_RANK=0
        case $who in all | $PLAIT_RANK) export EMULATED_NCCL="$words" ;; esac
        exec "$@"' "$2" "$3" "$top_builddir/tests/gpu/emulated/plait-train" \
        "$dir/c.yaml" --device cuda >"$dir/out" 2>&1 </dev/null
    status=$?
}

# ends WHAT LINE: with a line of that kind
ends() {
    ok "$1: the run ends" eval 'test $status != 0 && test $status != 124'
    ok "... and says so" grep -q "^plait-train: .*$2" "$dir/out"
}

# once: no other line says why the run ends
once() {
    ok "... once" test "$(grep -c "^plait-train: " "$dir/out")" = 1
}

train --tp=2 all ""
ok "without a fault it trains" test $status = 0

ok "... and nothing is said of its GPUs" \
    eval '! grep "sees a single GPU" "$dir/out"'
ok "... but how NCCL connects them" \
    grep -q '^NCCL: tp of 2: P2P, 16 channels, .* GB/s$' "$dir/out"
ok "... in which an emulated GPU is far below NVLink" test "$(grep -c \
    "^plait-train: the tp group of ranks 0 to 1 sums at .*less than a quarter" \
    "$dir/out")" = 1

echo "gpu_types: {h100: {link_gbps: 0.001}}" >"$dir/site"
PLAIT_SITE=$dir/site EMULATED_VIA=NET/IB/0/GDRDMA train --tp=2 all ""
ok "a group by the network, as fast as its links" \
    grep -q '^NCCL: tp of 2: NET/IB GDR, 16 channels, .* GB/s$' "$dir/out"
ok "... of which nothing else is said" \
    eval '! grep "less than a quarter" "$dir/out"'
NCCL_DEBUG=WARN train --tp=2 all ""
ok "NCCL's log is the user's where he asks for it" \
    grep -q '^NCCL: tp of 2: [0-9.e+-]* GB/s$' "$dir/out"
echo "NCCL_DEBUG=WARN" >"$dir/conf"
NCCL_CONF_FILE=$dir/conf train --tp=2 all ""
ok "... in a file, too" \
    grep -q '^NCCL: tp of 2: [0-9.e+-]* GB/s$' "$dir/out"

lone=yes train --tp=2 all ""
ok "ranks that see a GPU each train" test $status = 0
ok "... and it is said that NCCL may miss NVLink" test \
    "$(grep -c "^plait-train: each rank .* sees a single GPU" "$dir/out")" = 1

EMULATED_NCCL_VERSION=22505 train --tp=2 all ""
ok "a version of NCCL with a known fault trains" test $status = 0
ok "... and it is said" test \
    "$(grep -c "^plait-train: NCCL before 2.26 " "$dir/out")" = 1

train --tp=2 all never-connect
ends "no rank is connected" "NCCL has not connected ranks 0, 1 of 2: .* 6 s "
once

train --tp=2 1 never-start
ends "one rank hangs in NCCL" \
    "no rank has done anything for 12 s .* rank 1 (.*) never entered control"
once

train --tp=2 all never-split
ends "groups are never split off" "NCCL: split: has not ended for 6 s"
once
echo "1..$n"
