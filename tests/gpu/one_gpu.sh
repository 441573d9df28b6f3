#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Several ranks over NCCL on one GPU, for machines that have no more: their
# losses are those of one rank. NCCL refuses two ranks of a host that have the
# same GPU: so each has a host of its own by NCCL_HOSTID, and they talk over the
# loopback interface. The GPU takes turns between them, which is slow.
. "$top_srcdir/tests/gpu/gpu.sh"
[ -z "${PLAIT_TEST_PROGRAMS-}" ] || PATH=$PLAIT_TEST_PROGRAMS:$PATH

plait-prep "$top_srcdir/LICENSE" --out "$work/data" >/dev/null || exit 99
cat >"$work/c.yaml" <<END
model: {family: llama, layers: 4, hidden: 128, heads: 2, ffn: 128, vocab: 257, seq_len: 16}
data: {train: "$work/data/train.bin"}
train: {steps: ${PLAIT_TEST_STEPS:-4}, global_batch: 4, micro_batch: 1, seed: 7}
optim: {lr: 1.0e-3}
lr: {warmup: 1}
END
cat >"$work/rank" <<'END'
export LOCAL_RANK=0 NCCL_HOSTID="plait-$PLAIT_RANK-${PLAIT_SPARE:-0}"
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
echo $$ >"$0.$PLAIT_RANK"
exec "$@"
END

# train NAME RANKS "FLAGS" SETTING..: metrics in $work/NAME. What hangs is ended
# after the limit; the emulated GPU, which checks each access of attention's own
# kernels, works 15 s on 4 steps in context parallelism.
train()
{
	name=$1 ranks=$2 flags=$3
	shift 3
	rm -f "$work/$name"
	timeout -k 9 ${PLAIT_TEST_LIMIT:-60} plait run --np "$ranks" --pin=none \
		$flags -- sh "$work/rank" plait-train "$work/c.yaml" \
		--resume none --device cuda --metrics "$work/$name" \
		$(printf -- '--set %s ' train.deterministic=true "$@") \
		>"$work/out" 2>&1 </dev/null
	status=$?
	[ $status -eq 0 ] || sed 's/^/# /' "$work/out"
	return $status
}

# like RANKS "FLAGS" SETTING..: whether losses are those of one rank
like()
{
	train some "$@" && agree "$work/some" "$work/one" 1e-3
	report $? "$*"
}

train one 1 ""
report $? "one rank"
like 2 --dp=2
like 2 --dp=2 train.graph=off
for zero in 1 2 3; do
	like 2 --dp=2 "parallel.zero=$zero"
done
like 2 --tp=2
like 2 --tp=2 parallel.sequence=true
like 2 --pp=2
like 2 --pp=2 parallel.schedule=interleaved parallel.virtual=2
like 2 --pp=2 parallel.schedule=zb-h1
like 2 --cp=2
like 4 "--tp=2 --dp=2" parallel.zero=1
like 4 "--tp=2 --pp=2"

# A rank that is killed, and the others go on to the same losses.
train one 1 "" train.steps=24 checkpoint.dir="$work/ck1"
report $? "one rank, for longer"
rm -f "$work/some"
(
	until [ -e "$work/ended" ]; do
		sleep 0.1
		[ -e "$work/some" ] && [ "$(wc -l <"$work/some")" -ge 8 ] || continue
		exec kill -9 "$(cat "$work/rank.2")"
	done
) &
train some 4 "--elastic --dp=4" train.steps=24 \
	checkpoint.dir="$work/ck2" checkpoint.every=5
: >"$work/ended"
grep -q "is gone in step" "$work/out" &&
	python3 -B "$top_srcdir/tests/lib/same_losses.py" "$work/one" \
		"$work/some" 24
report $? "dp 4, one is killed"
wait
echo "1..$count"
