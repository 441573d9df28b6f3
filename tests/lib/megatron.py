# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of Megatron-LM's, read and damaged without any package:

megatron.py read FILE          its tensors and args, one a line
megatron.py damage FILE CASE   the same file with something wrong in it
"""
import io
import pickle
import struct
import sys
import zipfile

STEM = "model_optim_rng"


class Made:
    """An instance of a class that is not installed here."""

    def __init__(self, name, *args):
        self.name, self.args, self.state = name, args, {}

    def __setstate__(self, state):
        self.state = state


class Loader(pickle.Unpickler):
    def find_class(self, module, name):
        if name == "Namespace":  # protocol 2 makes every object by __new__
            return type(name, (Made,), {"__init__": lambda self: None})
        if name[0].islower() and not name.startswith("_rebuild"):
            return f"{module}.{name}"
        return lambda *args: Made(name, *args)

    def persistent_load(self, where):
        return where


def load(path):
    """Return args as a dict, and tensors: name -> (storage class, shape,
    bytes)."""
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None, "a checksum is wrong"
        assert z.read(f"{STEM}/version") == b"3\n"
        assert z.read(f"{STEM}/byteorder") == b"little"
        for info in z.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
        root = Loader(io.BytesIO(z.read(f"{STEM}/data.pkl"))).load()
        tensors = {}
        for name, t in root["model"].items():
            (_, _, key, _, n), offset, shape, strides = t.args[:4]
            assert t.name == "_rebuild_tensor_v2" and offset == 0
            assert strides == ((shape[1], 1) if len(shape) == 2 else (1,))
            data = z.read(f"{STEM}/data/{key}")
            assert len(data) % n == 0
            tensors[name] = (shape, data)
    return root["args"].state, tensors


def read(path):
    args, tensors = load(path)
    for name, value in args.items():
        print(f"{name} = {value}")
    for name, (shape, data) in tensors.items():
        print(name, list(shape), len(data))


def rewrite(path, change, method=zipfile.ZIP_STORED):
    """Copy all entries of the zip, with data.pkl changed."""
    with zipfile.ZipFile(path) as z:
        entries = [(i.filename, z.read(i)) for i in z.infolist()]
    with zipfile.ZipFile(path, "w", method) as z:
        for name, data in entries:
            if name.endswith("data.pkl"):
                data = change(data)
            if data is not None:
                z.writestr(name, data)


def swap(old, new):
    def change(data):
        assert old in data, old
        return data.replace(old, new, 1)
    return change


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def number(name, old, new):
    return swap(text(name) + b"J" + struct.pack("<i", old),
                text(name) + b"J" + struct.pack("<i", new))


CASES = {
    "no-pickle": lambda d: None,
    "empty-pickle": lambda d: b"",
    "cut-pickle": lambda d: d[:len(d) // 2],
    "text": lambda d: b"\x80\x02" + text("hello") + b".",
    "list": lambda d: b"\x80\x02].",
    "protocol-0": lambda d: b"(dp0\n.",
    "no-mark": lambda d: b"\x80\x02u.",
    "no-stack": lambda d: b"\x80\x020.",
    "memo": lambda d: b"\x80\x02}r\xff\xff\xff\x7f.",
    "recall": lambda d: b"\x80\x02h\x05.",
    "long-text": lambda d: b"\x80\x02X\xff\xff\xff\xff.",
    "itself": lambda d: b"\x80\x02}q\x00(" + text("model") + b"h\x00" +
    text("args") + b"h\x00u.",
    # what an attacker's pickle would execute
    "system": lambda d: b"\x80\x02cos\nsystem\n(" + text("touch pwned") +
    b"tR.",
    "no-args": swap(text("args"), text("arms")),
    "no-model": swap(text("model"), text("mode1")),
    "legacy": swap(text("embedding.word_embeddings.weight"),
                   text("language_model")),
    "layers": number("num_layers", 2, 3),
    "fewer-layers": number("num_layers", 2, 1),
    "no-layers": number("num_layers", 2, 0),
    "odd-layers": swap(text("num_layers") + b"J\2\0\0\0",
                       text("num_layers") + text("2")),
    "lost-layers": swap(text("num_layers"), text("num_1ayers")),
    "ranks": number("tensor_model_parallel_size", 1, 3),
    "vocab": number("vocab_size", 130, 13000),
    "hidden": number("hidden_size", 24, 25),
    "relu": swap(text("swiglu") + b"\x88", text("swiglu") + b"\x89"),
    "dropout": swap(text("hidden_dropout") + b"G" + bytes(8),
                    text("hidden_dropout") + b"G" + struct.pack(">d", 1)),
    "norm": swap(text("RMSNorm"), text("LayerNorm")),
    "position": swap(text("rope"), text("alibi")),
    "window": swap(text("iteration") + b"J\0\0\0\0",
                   text("window_size") + b"J\1\0\0\0"),
    "int8": swap(b"FloatStorage", b"ByteStorage"),
    "huge": swap(b"tQJ\0\0\0\0", b"tQJ\xff\xff\xff\x7f"),
    "strides": swap(b"t(J\x18\0\0\0J\1\0\0\0t", b"t(J\1\0\0\0J\x18\0\0\0t"),
    "three": swap(b"t(J\x18\0\0\0J\1\0\0\0t",
                  b"t(J\x18\0\0\0J\1\0\0\0J\1\0\0\0t"),
    "gone-data": swap(text("storage") + b"ctorch\nFloatStorage\n" + text("0"),
                      text("storage") + b"ctorch\nFloatStorage\n" +
                      text("x")),
}


def damage(path, case):
    if case in CASES:
        return rewrite(path, CASES[case])
    data = open(path, "rb").read()
    if case == "compressed":
        return rewrite(path, lambda d: d, zipfile.ZIP_DEFLATED)
    if case == "other-zip":
        with zipfile.ZipFile(path, "w") as z:
            z.writestr("a/b", "c")
        return None
    if case == "long-list":  # the list of the zip claims a size of 2**40 bytes
        at = data.rindex(b"PK\6\6") + 40
        data = data[:at] + struct.pack("<Q", 1 << 40) + data[at + 8:]
    elif case == "list-place":
        at = data.rindex(b"PK\6\6") + 48
        data = data[:at] + struct.pack("<Q", (1 << 64) - 9) + data[at + 8:]
    elif case == "far-entry":
        at, = struct.unpack_from("<Q", data, data.rindex(b"PK\6\6") + 48)
        at += 46 + struct.unpack("<H", data[at + 28:at + 30])[0] + 4 + 16
        data = data[:at] + struct.pack("<Q", 1 << 62) + data[at + 8:]
    elif case == "cut":
        data = data[:len(data) // 2]
    elif case == "empty":
        data = b""
    elif case == "legacy-torch":
        data = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + b"\0" * 100
    else:
        raise SystemExit(f"no case {case}")
    with open(path, "wb") as out:
        out.write(data)


if __name__ == "__main__":
    {"read": read, "damage": damage}[sys.argv[1]](*sys.argv[2:])
