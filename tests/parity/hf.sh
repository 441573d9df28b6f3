#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hugging Face models against transformers (hf_check.py).
. "$top_srcdir/tests/lib/transformers.sh"
"$python" "$top_srcdir/tests/parity/hf_check.py" "$dir" "$@"
