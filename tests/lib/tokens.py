# SPDX-License-Identifier: Apache-2.0
"""Tokens to train on, in llm.c's format: tokens.py FILE [COUNT [SEED]]"""
import struct
import sys
from array import array


def write_tokens(path, count=20000, seed=12345):
    """Version 1: 256 int32 of header, then uint16 tokens, all below 257."""
    tokens = array("H")
    x, words = seed, []
    for _ in range(60):  # a text with something to learn: a few words
        x = (x * 1103515245 + 12345) % 2**31
        words.append([97 + (x >> 7 * i) % 26 for i in range(1 + x % 6)])
    while len(tokens) < count:
        x = (x * 1103515245 + 12345) % 2**31
        tokens.extend(words[(x >> 8) % len(words)] + [32])
    del tokens[count:]
    header = [20240520, 1, count] + [0] * 253
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", *header))
        f.write(tokens.tobytes())


if __name__ == "__main__":
    write_tokens(sys.argv[1], *map(int, sys.argv[2:]))
