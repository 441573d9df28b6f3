# SPDX-License-Identifier: Apache-2.0
"""IDX files of small made-up images: a bright square whose place depends on
the label, in noise."""
import random
import struct


def idx(path, dims, data):
    with open(path, "wb") as f:
        f.write(struct.pack(">HBB", 0, 8, len(dims)))
        f.write(struct.pack(f">{len(dims)}I", *dims))
        f.write(bytes(data))


def image(rng, label, shape):
    channels, height, width = shape
    y0, x0 = 3 * label % height, 5 * label % width
    return [min(255, rng.randrange(60) +
                150 * (abs(y - y0) < 2 and abs(x - x0) < 2))
            for _ in range(channels)
            for y in range(height) for x in range(width)]


def write_images(stem, n, shape, classes, seed=1):
    """Write STEM-images-idx3-ubyte (idx4 for several channels) and its labels;
    return the path of the images, and both as lists."""
    rng = random.Random(seed)
    labels = [rng.randrange(classes) for _ in range(n)]
    images = [image(rng, label, shape) for label in labels]
    dims = [n, *shape[1:]] if shape[0] == 1 else [n, *shape]
    path = f"{stem}-images-idx{len(dims)}-ubyte"
    idx(path, dims, [v for i in images for v in i])
    idx(f"{stem}-labels-idx1-ubyte", [n], labels)
    return path, images, labels
