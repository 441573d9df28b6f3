#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The part of check.sh that needs no torch: JAX of PyPI joins by the call of
# examples/jax.sbatch, which keeps the plan, and by its own reading of Slurm, which a
# host file makes the plan's.
version=$(sed -n 's/^jax==//p' "$top_srcdir/tests/trainers/versions.txt")
packages=$(mktemp -d) || exit 99
trap 'rm -rf "$packages"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
python3 -m venv "$packages/venv" >/dev/null 2>&1 && timeout 120 \
    "$packages/venv/bin/pip" install -q "jax==$version" 2>/dev/null || {
    echo "1..0 # SKIP no jax from PyPI"
    exit 0
}
TRAINERS_VENV=$packages/venv ONLY=jax ROWS='jax.sbatch|host file, sbatch' \
    bash "$top_srcdir/tests/trainers/check.sh"
