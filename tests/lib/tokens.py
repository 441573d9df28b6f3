# SPDX-License-Identifier: Apache-2.0
"""Write tokens to train on, in llm.c's format: tokens.py FILE [COUNT [SEED]]"""
import struct
import sys
import zlib
from array import array


def make_tokens(count, seed):
    """Tokens of a text that can be learned: a few words, again and again."""
    tokens = array("H")
    x, words = seed, []
    for _ in range(60):
        x = (x * 1103515245 + 12345) % 2**31
        words.append([97 + (x >> 7 * i) % 26 for i in range(1 + x % 6)])
    while len(tokens) < count:
        x = (x * 1103515245 + 12345) % 2**31
        tokens.extend(words[(x >> 8) % len(words)] + [32])
    del tokens[count:]
    return tokens


def write_tokens(path, count=20000, seed=12345):
    """Version 1: 256 int32 of header, then uint16 tokens, all below 257."""
    header = [20240520, 1, count] + [0] * 253
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", *header))
        f.write(make_tokens(count, seed).tobytes())


def write_prompts(path, count=20000, seed=12345):
    """The same as a masked shard of Plait's: runs of 1 to 64 tokens,
    alternately prompt and answer, so that batches differ in how many tokens
    count."""
    tokens, at, x = make_tokens(count, seed), 0, seed
    while at < count:
        x = (x * 1103515245 + 12345) % 2**31
        prompt, rest = 1 + (x >> 8) % 64, 1 + (x >> 16) % 64
        for i in range(at, min(at + prompt, count)):
            tokens[i] |= 0x8000
        at += prompt + rest
    head = struct.pack("<8sIIQI28sI", b"PLAITTOK", 2, 2, count, 123, b"", 0)
    with open(path, "wb") as f:
        f.write(head + struct.pack("<I", zlib.crc32(head)))
        f.write(tokens.tobytes())


if __name__ == "__main__":
    write_tokens(sys.argv[1], *map(int, sys.argv[2:]))
