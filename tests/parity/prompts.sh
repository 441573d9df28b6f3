#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prompts without loss against PyTorch's ignore_index (prompts_check.py).
. "$top_srcdir/tests/lib/transformers.sh"
"$python" "$top_srcdir/tests/parity/prompts_check.py" "$dir"
