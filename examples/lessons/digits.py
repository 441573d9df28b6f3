#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's digits as IDX files: every fifth one to validate with.

    digits.py DIR       (python3-sklearn of Debian, or pip install scikit-learn)
"""
import os
import struct
import sys

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("digits.py: scikit-learn is not installed")


def write(path, dims, data):
    with open(path, "wb") as f:
        f.write(struct.pack(f">HBB{len(dims)}I", 0, 8, len(dims), *dims))
        f.write(bytes(data))


def write_part(stem, pixels, labels):
    write(f"{stem}-images-idx3-ubyte", pixels.shape, pixels.tobytes())
    write(f"{stem}-labels-idx1-ubyte", labels.shape, labels.tobytes())


def main(directory):
    digits = load_digits()
    pixels = (digits.images * 255 / 16).round().astype("uint8")
    labels = digits.target.astype("uint8")
    val = [i % 5 == 0 for i in range(len(labels))]
    train = [not v for v in val]
    os.makedirs(directory, exist_ok=True)
    write_part(os.path.join(directory, "train"), pixels[train], labels[train])
    write_part(os.path.join(directory, "val"), pixels[val], labels[val])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
