# SPDX-License-Identifier: Apache-2.0
"""TensorBoard's event files, read with the standard library alone.
events.py DIR prints a line for each scalar, text, histogram and session start
of all files, in the order of the files' names; it fails on a wrong checksum or
a truncated record."""
import glob
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of the CRC


def check(data, stored):
    crc = crc32c(data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert struct.pack("<I", masked) == stored, "wrong checksum"


def records(path):
    data = open(path, "rb").read()
    while data:
        size, = struct.unpack("<Q", data[:8])
        check(data[:8], data[8:12])
        body = data[12:12 + size]
        assert len(data) >= 16 + size, "a record is cut"
        check(body, data[12 + size:16 + size])
        data = data[16 + size:]
        yield body


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """Decode a protobuf message to {field: [values]}."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(wire)
            if size is None:
                assert wire == 2, wire
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size
        found.setdefault(key >> 3, []).append(value)
    return found


def histogram(data):
    """A HistogramProto as a dict, with its lists of limits and counts."""
    found = fields(data)
    names = ("min", "max", "num", "sum", "sum_squares")
    value = {name: struct.unpack("<d", found[i + 1][0])[0]
             for i, name in enumerate(names)}
    for i, name in (6, "bucket_limit"), (7, "bucket"):
        packed, = found[i]
        value[name] = list(struct.unpack("<%dd" % (len(packed) // 8), packed))
    return value


def events(path):
    """Yield (step, tag, value) of each event in a file; value is a float, a
    text or a histogram. The tag is None for a restart."""
    first = True
    for body in records(path):
        event = fields(body)
        wall, = struct.unpack("<d", event[1][0])
        assert 1.5e9 < wall < 1e10, wall
        step = event.get(2, [0])[0]
        if first:
            assert event[3] == [b"brain.Event:2"], event
            first = False
        if 7 in event:
            assert fields(event[7][0]) == {1: [1]}
            yield step, None, None
        for summary in event.get(5, []):
            for value in map(fields, fields(summary).get(1, [])):
                tag = value[1][0].decode()
                if 2 in value:
                    yield step, tag, struct.unpack("<f", value[2][0])[0]
                elif 5 in value:
                    yield step, tag, histogram(value[5][0])
                else:
                    assert fields(fields(value[9][0])[1][0]) == {1: [b"text"]}
                    yield step, tag, fields(value[8][0])[8][0].decode()


def read(folder):
    for path in sorted(glob.glob(folder + "/events.out.tfevents.*")):
        yield from events(path)


if __name__ == "__main__":
    for event in read(sys.argv[1]):
        print(*event)
