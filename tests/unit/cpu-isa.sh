#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# PLAIT_CPU_ISA: for each instruction set of this processor, products of Plait
# and of oneDNN, which both must respect it, against ref; the same training
# twice gives the same bits, and trainings with different sets agree to
# rounding.
. "$top_srcdir/tests/lib/check.sh"
. "$top_srcdir/tests/lib/tier.sh"
train=$(realpath "$top_builddir")/plait-train
ops=$(realpath "$top_builddir")/tests/unit/test_ops_cpu
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
export OMP_NUM_THREADS=1
head -c 6000 "$top_srcdir/LICENSE" >"$tmp/text"
"$top_builddir/plait-prep" "$tmp/text" --out "$tmp/data" >/dev/null 2>&1
cat >"$tmp/c.yaml" <<EOF
model: {family: llama, layers: 1, hidden: 48, heads: 3, vocab: 257, seq_len: 40}
data: {train: "$tmp/data/train*.bin"}
train: {steps: 4, global_batch: 2, micro_batch: 2}
EOF

# run CLASS FILE ARGS...: write the losses and norms of a training to FILE
run() {
    local class=$1 file=$2
    shift 2
    PLAIT_CPU_ISA=$class timeout 240 "$train" "$tmp/c.yaml" "$@" \
        --metrics "$tmp/m" >"$tmp/out" 2>"$tmp/err" </dev/null || return 1
    sed -n 's/.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/p' \
        "$tmp/m" >"$file"
    [ "$(wc -l <"$file")" = 4 ]
}

# near FILE FILE BOUND: whether losses differ by at most BOUND, norms by 10
# times that
near() {
    paste -d' ' "$1" "$2" | awk -v bound="$3" '
        function off(x, y) { return x > y ? (x - y) / y : (y - x) / y }
        off($1, $3) > bound || off($2, $4) > 10 * bound { bad = 1; print "# " $0 }
        END { exit bad || NR != 4 }'
}

# refused CLASS TEXT: whether it fails before anything else, with one line
refused() {
    PLAIT_CPU_ISA=$1 "$train" "$tmp/c.yaml" >"$tmp/out" 2>"$tmp/err" </dev/null
    [ $? = 1 ] && [ ! -s "$tmp/out" ] && [ "$(wc -l <"$tmp/err")" = 1 ] &&
        grep -q -e "PLAIT_CPU_ISA=$1: \($2\)" "$tmp/err"
    rc=$?
    check "$1 is refused: $(head -1 "$tmp/err")" $rc
}

run "" "$tmp/best" && run "" "$tmp/best16" --set train.precision=bf16
check "trains with the best instructions" $?
best=$(sed -n 's/.* on cpu \([a-z0-9]*\);.*/\1/p' "$tmp/out" | head -n 1)
refused sse9 "must be base, avx2, avx512, avx512bf16, amx or amxown"
for class in base avx2 avx512 avx512bf16 amx amxown neon sve; do
    if ! PLAIT_CPU_ISA=$class "$train" "$tmp/c.yaml" --set train.steps=1 \
        >/dev/null 2>&1 </dev/null; then
        why="this processor supports at most"
        # where amx is there, the build or the system may still lack amxown
        [ $class = amxown ] && [ "$best" = amx ] &&
            why="this build has no code for it\|the system does not let"
        refused $class "$why"
        continue
    fi
    # In the quick tier the least and the best: test_ops_cpu has Plait's kernels
    # of all classes.
    all_tier || [ $class = base ] || [ $class = "$best" ] || continue
    for cases in linear convolution; do
        PLAIT_CPU_ISA=$class PLAIT_TEST_CASES=$cases "$ops" >"$tmp/out" &&
            grep -q "^ok" "$tmp/out"
        check "$class: $cases like ref" $?
        grep -A3 "^not ok\|^# seed" "$tmp/out" | sed 's/^not/# not/'
    done
    for type in fp32 bf16; do
        set -- --set train.precision=$type
        run $class "$tmp/once" "$@" && grep -q "$type on cpu $class;" "$tmp/out"
        check "$class: trains in $type, and says so" $?
        run $class "$tmp/again" "$@" && cmp "$tmp/once" "$tmp/again"
        check "$class: the same bits again in $type" $?
        [ $type = fp32 ] && near "$tmp/once" "$tmp/best" 1e-5 ||
            [ $type = bf16 ] && near "$tmp/once" "$tmp/best16" 3e-3
        check "$class: the same as the best to rounding in $type" $?
    done
done
echo "1..$n"
