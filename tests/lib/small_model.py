# SPDX-License-Identifier: Apache-2.0
"""Write a small model to train, one of the parity matrix, to DIR/c.yaml, and
its tokens to DIR/tokens.bin.
usage: small_model.py DIR gpt2|llama"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "parity"))
import parity  # noqa: E402

tokens = os.path.join(sys.argv[1], "tokens.bin")
parity.write_tokens(tokens)
parity.write_config(os.path.join(sys.argv[1], "c.yaml"), sys.argv[2], tokens)
