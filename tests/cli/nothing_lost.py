# SPDX-License-Identifier: Apache-2.0
"""Damages checkpoints for nothing_lost.sh in ways that leave their checksums
right, so that only the contents are wrong."""
import json
import os
import struct
import sys
import zlib


def seal(text):
    """Set the manifest's own checksum, that of its text with zeros in its
    place."""
    head, tail = text.rsplit('"checksum": "', 1)
    zeros = head + '"checksum": "00000000' + tail[8:]
    crc = zlib.crc32(zeros.rstrip("\n").encode())
    return head + f'"checksum": "{crc:08x}' + tail[8:]


def poison(checkpoint, prefix, value):
    """Set one element of the first tensor with this name to `value`."""
    path = os.path.join(checkpoint, "manifest.json")
    text = open(path).read()
    for entry in json.loads(text)["files"]:
        name = os.path.join(checkpoint, entry["name"])
        data = bytearray(open(name, "rb").read())
        size = struct.unpack("<Q", data[:8])[0]
        head = json.loads(data[8:8 + size])
        found = sorted(k for k in head if k.startswith(prefix))
        if not found:
            continue
        at = 8 + size + head[found[0]]["data_offsets"][0]
        data[at:at + 4] = struct.pack("<f", float(value))
        open(name, "wb").write(data)
        text = text.replace(f'"crc32": "{entry["crc32"]}"',
                            f'"crc32": "{zlib.crc32(data):08x}"')
        open(path, "w").write(seal(text))
        return
    sys.exit(f"no tensor {prefix}*")


def age(checkpoint):
    """Rewrite the manifest as earlier versions wrote it."""
    path = os.path.join(checkpoint, "manifest.json")
    m = json.load(open(path))
    for key in ("settings", "data", "checksum"):
        del m[key]
    json.dump(m, open(path, "w"), indent=1)


{"poison": poison, "age": age}[sys.argv[1]](*sys.argv[2:])
