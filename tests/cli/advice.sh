#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What messages advise works when it is pasted: see advice.py.
# PLAIT_TEST_ADVICE is the number of wrong commands, PLAIT_TEST_SEED the seed.
set -u
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
here=$(cd "$top_srcdir/tests/cli" && pwd)
build=$(cd "$top_builddir" && pwd)
export OMP_NUM_THREADS=1 PLAIT_SITE=
unset "${!SLURM_@}" "${!PLAIT_R@}" MASTER_ADDR MASTER_PORT
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
seq 3000 >text
cat >kept.yaml <<'END'
model: {family: gpt2, layers: 1, hidden: 16, heads: 4, kv_heads: 4,
  vocab: 257, seq_len: 16}
data: {train: tokens}
train: {steps: 2, global_batch: 8, micro_batch: 2, precision: fp32}
checkpoint: {dir: kept}
END
{ "$build/plait-prep" text --out tokens &&
    "$build/plait-train" kept.yaml --device cpu; } >said 2>&1 ||
    { sed 's/^/# /' said; echo "Bail out! no checkpoint"; exit 99; }
python3 -B "$here/advice.py" "$build" "${PLAIT_TEST_SEED:-52}" \
    "${PLAIT_TEST_ADVICE:-150}"
