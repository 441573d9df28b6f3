#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The search for the fastest algorithms of matrix products, on the emulated GPU:
# ranks whose fastest algorithms differ agree on one, and the choices are
# cached.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset PLAIT_MATMUL_CACHE
XDG_CACHE_HOME=$tmp/cache EMULATED_GPUS=2 EMULATED_CHOICES=$tmp/choices
export XDG_CACHE_HOME EMULATED_GPUS EMULATED_CHOICES
kept=$XDG_CACHE_HOME/plait/products
words='the fastest algorithms of'

"$top_builddir/plait-prep" "$top_srcdir/LICENSE" --out "$tmp/data" \
	>/dev/null || exit 99
cat >"$tmp/job.yaml" <<-END
	model: {family: gpt2, layers: 1, hidden: 16, heads: 2, vocab: 257, seq_len: 8}
	data: {train: "$tmp/data/train.bin"}
	train: {steps: 3, global_batch: 4, micro_batch: 2, precision: bf16}
END
# number 0 is the fastest on rank 0, number 1 on rank 1; swap=1: the reverse
cat >"$tmp/rank" <<-'END'
	EMULATED_FAST=$(((${PLAIT_RANK:-0} + ${swap:-0}) % 2))
	export EMULATED_FAST
	exec "$top_builddir/tests/gpu/emulated/plait-train" "$@"
END
swap=1
export swap

# train RANKS SETTING..: output in $tmp/out
train()
{
	ranks=$1
	shift
	launch=
	[ "$ranks" = 1 ] ||
		launch="$top_builddir/plait run --np $ranks --tp=$ranks --"
	rm -f "$tmp"/choices.*
	timeout 240 $launch sh "$tmp/rank" "$tmp/job.yaml" --resume none \
		--device cuda $(printf -- '--set %s ' train.seed=1 "$@") \
		>"$tmp/out" 2>&1
}

# searched N: whether so many products were searched for; "": no search
searched()
{
	[ "$(sed -n "s/^$words \([0-9]*\) .*/\1/p" "$tmp/out")" = "$1" ]
}

# said: check() of the last status, which prints the run's output on failure
said()
{
	status=$?
	[ $status = 0 ] || sed 's/^/# /' "$tmp/out"
	check "$1" $status
}

# alike: every product has the same algorithm on all ranks
alike()
{
	[ -s "$tmp/choices.1" ] &&
		[ -z "$(sort -u "$tmp"/choices.* | cut -d: -f1 | uniq -d)" ]
}

train 2 && alike
said "ranks that time products differently take the same algorithms"
products=$(sed -n "s/^$words \([0-9]*\) .*/\1/p" "$tmp/out")
sort -u "$tmp"/choices.* >"$tmp/first"
grep -q ': 0$' "$tmp/first" && grep -q ': 1$' "$tmp/first"
said "... of which each rank has timed some"
[ "$(wc -l <"$kept")" = "$products" ] &&
	[ "$(ls "$XDG_CACHE_HOME/plait")" = products ]
said "they are kept, in a file that is put in place whole"

swap=
train 2 && searched '' && sort -u "$tmp"/choices.* | diff - "$tmp/first" \
	>>"$tmp/out"
said "another run takes them from there"

sed -i '2s/..........$//' "$kept"
EMULATED_DRIVER=12080
export EMULATED_DRIVER
train 2 && searched "$products" && alike
said "what another driver found is not taken"
grep -q "$kept: ignored 1 damaged line" "$tmp/out" &&
	[ "$(wc -l <"$kept")" = $((2 * products - 1)) ]
said "... and stays, but for a damaged line, which is passed over"
unset EMULATED_DRIVER

rm "$kept"
swap=1
for no in train.search_products=false train.deterministic=true; do
	train 1 $no && searched '' && ! [ -e "$kept" ] &&
		! grep -q ': 1$' "$tmp/choices.0"
	said "$no: the library's first choices"
done
PLAIT_MATMUL_CACHE=$tmp/data/train.bin/none
export PLAIT_MATMUL_CACHE
train 1 train.graph=on && ! searched '' && grep -q ': 1$' "$tmp/choices.0"
said "a file that cannot be written is done without, in graphs too"
echo "1..$n"
