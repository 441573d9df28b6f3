#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plait-prep's tokens of texts in many scripts, with code, emoji and invalid
# UTF-8, against PyPI's `tokenizers` (tokens_check.py).
# TOKENIZERS_PYTHON: a Python that has the package. TOKENIZERS_MB=100: more
# text, a few minutes.
python=${TOKENIZERS_PYTHON:-python3}
$python -c 'import sys, tokenizers
assert sys.version_info >= (3, 9)' 2>/dev/null ||
    { echo "1..0 # SKIP no Python package tokenizers"; exit 0; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
seed=$(od -An -N3 -tu4 /dev/urandom)
# shellcheck disable=SC2086 # one word
"$python" "$top_srcdir/tests/parity/tokens_check.py" \
    "$top_builddir/plait-prep" "$tmp" "${TOKENIZERS_MB:-1}" $seed
