#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The peak that MFU is relative to, as remembered from earlier runs on the
# machine.
set -u
train=$top_builddir/plait-train
command -v python3 >/dev/null && "$train" --version >/dev/null ||
    { echo "1..0 # SKIP needs python3"; exit 0; }
. "$top_srcdir/tests/lib/check.sh"
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
python3 "$top_srcdir/tests/lib/tokens.py" "$dir/tokens.bin" 2000 1
cat >"$dir/c.yaml" <<END
model: {layers: 1, hidden: 16, heads: 2, vocab: 257, seq_len: 16}
data: {train: $dir/tokens.bin}
train: {steps: 2, global_batch: 2, micro_batch: 2}
END

# run [VARIABLE=VALUE ...]: train with these environment variables
run() {
    rm -f "$dir"/m*
    env -u PLAIT_PEAKS -u XDG_CACHE_HOME HOME="$dir/home" "$@" \
        timeout 240 "$train" "$dir/c.yaml" --device cpu --metrics "$dir/m" \
        >"$dir/out" 2>&1 </dev/null
}

# against PEAK: whether the run's record has this peak and each MFU follows from
# it
against() {
    python3 - "$dir/m" "$1" <<'END'
import json, sys
start = json.loads(open(sys.argv[1] + ".starts").readline())
lines = [json.loads(line) for line in open(sys.argv[1])]
peak = float(sys.argv[2])
assert abs(start["peak_flops"] / peak - 1) < 1e-3, start
assert len(lines) == 2 and all(0 < l["mfu"] < 1e-3 for l in lines), lines
# 1 layer of 16: 12 x 256 + 257 x 16 weights multiply, and half of the scores is masked
full, masked = 6 * (12 * 256 + 257 * 16) + 12 * 16 * 16, 6 * 16 * 16
for l in lines:
    assert abs(l["mfu_causal"] / l["mfu"] - 1 + masked / full) < 1e-3, l
END
}

file=$dir/new/peaks
run PLAIT_PEAKS="$file"
check "a run keeps what it has seen, in a new folder" $?
[ "$(wc -l <"$file")" = 1 ] && grep -q ' 1 ranks of 1 threads' "$file"
check "as one line, which says of what" $?

key=$(cut -d' ' -f2- "$file")
printf '%s\n' "nonsense" "1e9 another processor" "1e16 $key" "nan $key" \
    >"$file"
cp "$file" "$dir/before"
run PLAIT_PEAKS="$file"
check "another one reads it" $?
against 1e16
check "and has its MFU against that" $?
cmp -s "$file" "$dir/before"
check "which it does not beat, and leaves the file as it is" $?

mkdir -p "$dir/home/.cache/plait"
file=$dir/home/.cache/plait/peaks
printf '%s\n' "1e9 another processor" "2 $key" >"$file"
run A=1 && [ "$(wc -l <"$file")" = 2 ] && ! grep -q "^2 " "$file" &&
    grep -q "^1e9 another processor" "$file"
check "the user's own is raised by a run that beats it, and no other line" $?

run HOME="$dir/none" PLAIT_PEAKS= && [ ! -e "$dir/none" ]
check "an empty name keeps none" $?
run PLAIT_PEAKS=/proc/none/peaks
check "a name that cannot be written to is no error" $?
[ -z "$(find "$dir" -name 'peaks.*')" ]
check "nothing is left beside the file" $?
echo "1..$n"
