# SPDX-License-Identifier: Apache-2.0
"""Small data in every form that plait-train reads, all made from one text."""
import os
import random
import struct
import sys
import zlib
from array import array

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "lib"))
from images import image, write_images

VOCAB = 61  # all tokens are below
END = 7  # of a document, about one token in eight
TOKENS = 3000


def tokens(seed):
    """Words of a small language, so that there is something to learn."""
    rng, out = random.Random(seed), array("H")
    words = [[rng.randrange(8, VOCAB) for _ in range(rng.randint(1, 6))]
             for _ in range(30)]
    while len(out) < TOKENS:
        out.extend(rng.choice(words))
        out.append(END if rng.random() < 0.5 else 3)
    return out[:TOKENS]


def write(path, *parts):
    with open(path, "wb") as f:
        for part in parts:
            f.write(part)


def llmc(path, text, width):
    magic, version = (20240520, 1) if width == 2 else (20240801, 7)
    write(path, struct.pack("<256i", magic, version, len(text), *[0] * 253),
          array("H" if width == 2 else "I", text).tobytes())


def shard(path, text, width, masked=False):
    """A shard of plait prep; masked: runs of prompts without a loss."""
    rng, at, top = random.Random(1), 0, 1 << 8 * width - 1
    text = array("H" if width == 2 else "I", text)
    while masked and at < len(text):
        prompt, rest = rng.randint(1, 20), rng.randint(1, 20)
        for i in range(at, min(at + prompt, len(text))):
            text[i] |= top
        at += prompt + rest
    head = struct.pack("<8sIIQI28sI", b"PLAITTOK", 2 if masked else 1, width,
                       len(text), VOCAB, b"", 0)
    write(path, head, struct.pack("<I", zlib.crc32(head)), text.tobytes())


def megatron(stem, text, kind):
    """STEM.bin and STEM.idx, a sequence for each document. kind: 8 is 16
    bits, 4 is 32."""
    width, lengths, begin = {8: 2, 4: 4}[kind], [], 0
    for i, token in enumerate(text):
        if token == END or i == len(text) - 1:
            lengths.append(i + 1 - begin)
            begin = i + 1
    starts = [width * sum(lengths[:i]) for i in range(len(lengths))]
    n = len(lengths)
    write(stem + ".bin", array("H" if width == 2 else "I", text).tobytes())
    write(stem + ".idx", struct.pack("<9sQBQQ", b"MMIDIDX", 1, kind, n, n + 1),
          array("i", lengths).tobytes(), array("q", starts).tobytes(),
          array("q", range(n + 1)).tobytes())


def cifar(path, classes):
    """CIFAR's binary format: a label, or a coarse and a fine one."""
    rng = random.Random(3)
    with open(path, "wb") as f:
        for _ in range(60):
            label = rng.randrange(classes)
            f.write(bytes([label] if classes == 10 else [label // 5, label]))
            f.write(bytes(image(rng, label, (3, 32, 32))))


def write_all(folder):
    """What draw.py names."""
    def path(name):
        return os.path.join(folder, name)

    for name, seed in (("a", 1), ("b", 2), ("v", 3)):
        text = tokens(seed)
        llmc(path(f"{name}.16.bin"), text, 2)
        llmc(path(f"{name}.32.bin"), text, 4)
        shard(path(f"{name}.16.plait"), text, 2)
        shard(path(f"{name}.32.plait"), text, 4)
        shard(path(f"{name}.masked.plait"), text, 2, True)
        megatron(path(f"{name}.m16"), text, 8)
        megatron(path(f"{name}.m32"), text, 4)
    write_images(path("small"), 150, (1, 6, 5), 10)
    write_images(path("color"), 150, (3, 8, 8), 10)
    cifar(path("ten.bin"), 10)
    cifar(path("hundred.bin"), 100)
