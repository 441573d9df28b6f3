#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tokenizers that PyPI's `tokenizers` trains here on this source tree's text:
# the ids agree on all of that text and on 30 files of random bytes.
# TOKENIZERS_PYTHON: a Python that has the package.
test=$top_builddir/tests/unit/test_bpe
python=${TOKENIZERS_PYTHON:-python3}
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
$python -c 'import tokenizers' 2>/dev/null ||
    { echo "1..0 # SKIP no Python package tokenizers"; exit 0; }
{
    cat "$top_srcdir/tests/fixtures/tokenizer/text" "$top_srcdir"/docs/*.md
    head -c 200000 "$top_srcdir/LICENSE"
    cat "$top_srcdir"/topology/*/*.c | head -c 1000000
    for i in $(seq 30); do
        head -c 3000 /dev/urandom
        echo
    done
} >"$tmp/text"
$python "$top_srcdir/tests/fixtures/tokenizer/make.py" "$tmp/text" "$tmp" \
    4000 >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 99; }
"$test" "$tmp"
