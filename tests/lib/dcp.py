# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as torch.distributed.checkpoint writes them, made and damaged
without any package:

dcp.py DIR MODEL [CASE]   the Hugging Face directory MODEL, each matrix in two
                          by two parts, in two files; CASE: what is wrong"""
import io
import os
import pickle
import shutil
import sys
import types
import zipfile
from collections import OrderedDict

import hf

METADATA = "torch.distributed.checkpoint.metadata"


def module(name):
    """A module of that name, which pickle finds classes in."""
    if name not in sys.modules:
        sys.modules[name] = types.ModuleType(name)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(module(parent), last, sys.modules[name])
    return sys.modules[name]


def known(where, name, base=object):
    made = type(name, (base,), {"__module__": where})
    setattr(module(where), name, made)
    return made


def plain(where, name):
    """A class whose instances have the attributes that they are made with."""
    made = known(where, name)
    made.__init__ = lambda self, **state: self.__dict__.update(state)
    return made


class Global:
    """What pickle writes as "torch NAME"."""

    def __init__(self, name):
        self.name, self.__module__ = name, "torch"
        setattr(module("torch"), name, self)

    def __reduce__(self):
        return self.name


Metadata = plain(METADATA, "Metadata")
Tensor = plain(METADATA, "TensorStorageMetadata")
Bytes = plain(METADATA, "BytesStorageMetadata")
Properties = plain(METADATA, "TensorProperties")
Properties.__getstate__ = lambda self: (self.dtype, None, False, None, False)
Chunk = plain(METADATA, "ChunkStorageMetadata")
Index = plain(METADATA, "MetadataIndex")
Place = plain("torch.distributed.checkpoint.filesystem", "_StorageInfo")
Size = known("torch", "Size", tuple)
Size.__reduce__ = lambda self: (Size, (tuple(self),))
TYPES = {"F32": Global("float32"), "BF16": Global("bfloat16"),
         "F16": Global("float16"), "I64": Global("int64")}
STORAGES = {"F32": known("torch", "FloatStorage"),
            "BF16": known("torch", "BFloat16Storage"),
            "F16": known("torch", "HalfStorage")}


def rebuild():
    """Stands for torch._utils._rebuild_tensor_v2."""


rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
module("torch._utils")._rebuild_tensor_v2 = rebuild


class Saved:
    """A tensor, as torch.save has it in its pickle."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype

    def __reduce__(self):
        strides = [1]
        for n in self.shape[:0:-1]:
            strides.insert(0, strides[0] * n)
        storage = types.SimpleNamespace(of=self)
        return rebuild, (storage, 0, tuple(self.shape), tuple(strides), False,
                         OrderedDict())


class Pickler(pickle.Pickler):
    def persistent_id(self, x):
        if not isinstance(x, types.SimpleNamespace):
            return None
        n = 1
        for size in x.of.shape:
            n *= size
        return "storage", STORAGES[x.of.dtype], "0", "cpu", n


def saved(shape, dtype, data):
    """The bytes that torch.save writes."""
    out, text = io.BytesIO(), io.BytesIO()
    Pickler(text, 2).dump(Saved(shape, dtype))
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("archive/data.pkl", text.getvalue())
        z.writestr("archive/byteorder", "little")
        z.writestr("archive/data/0", data)
        z.writestr("archive/version", "3\n")
    return out.getvalue()


def parts(shape, dtype, data):
    """Two by two parts of a matrix, two of a vector: (begin, size, bytes)."""
    width, cols = hf.WIDTH[dtype], shape[1] if len(shape) > 1 else 1
    half, middle = (shape[0] + 1) // 2, (cols + 1) // 2
    for r0, r1 in ((0, half), (half, shape[0])):
        for c0, c1 in ((0, middle), (middle, cols)):
            if c0 == c1:
                continue
            got = b"".join(
                data[(r * cols + c0) * width:(r * cols + c1) * width]
                for r in range(r0, r1))
            n = len(shape)
            yield (r0, c0)[:n], (r1 - r0, c1 - c0)[:n], got


def build(model):
    """The metadata, and the bytes of the files."""
    meta = Metadata(state_dict_metadata={}, planner_data=None, storage_data={},
                    storage_meta=None, version="1.0.0")
    files = {"__0_0.distcp": b"", "__1_0.distcp": b""}
    for name, (shape, dtype, data) in hf.read(model).items():
        chunks = []
        for i, (begin, size, part) in enumerate(parts(shape, dtype, data)):
            file = f"__{i % 2}_0.distcp"
            item = saved(size, dtype, part)
            chunks.append(Chunk(offsets=Size(begin), sizes=Size(size)))
            meta.storage_data[Index(fqn=name, offset=Size(begin), index=i)] = \
                Place(relative_path=file, offset=len(files[file]),
                      length=len(item))
            files[file] += item
        meta.state_dict_metadata[name] = Tensor(
            properties=Properties(dtype=TYPES[dtype]), size=Size(shape),
            chunks=chunks)
    meta.state_dict_metadata["epoch"] = Bytes()
    return meta, files


# -- what may be wrong --------------------------------------------------------

NAME = "model.embed_tokens.weight"


class System:
    """What an attacker's pickle would execute."""

    def __reduce__(self):
        return os.system, ("touch pwned",)


def place(meta):
    return next(v for k, v in meta.storage_data.items() if k.fqn == NAME)


def change_place(**values):
    return lambda meta, files: place(meta).__dict__.update(values)


def change_tensor(**values):
    return lambda meta, files: meta.state_dict_metadata[NAME].__dict__.update(
        values)


def change_chunk(**values):
    return lambda meta, files: meta.state_dict_metadata[NAME].chunks[
        1].__dict__.update(values)


def rename(*changes):
    def change(meta, files):
        for prefix in changes:
            for name in list(meta.state_dict_metadata):
                if "." in name and not name.startswith(changes):
                    meta.state_dict_metadata[prefix + name] = \
                        meta.state_dict_metadata[name]
        for name in list(meta.state_dict_metadata):
            if not name.startswith(changes):
                del meta.state_dict_metadata[name]
    return change


def wrap(meta, files):
    """As modules have it that were compiled or checkpointed one by one."""
    def longer(name):
        return "model." + name.replace(".mlp.", "._orig_mod.mlp.").replace(
            ".self_attn.", "._checkpoint_wrapped_module.self_attn.")
    for key in meta.storage_data:
        key.fqn = longer(key.fqn)
    meta.state_dict_metadata = {
        longer(k): v for k, v in meta.state_dict_metadata.items()}


def lose_chunk(meta, files):
    del meta.state_dict_metadata[NAME].chunks[2]


def lose_place(meta, files):
    meta.storage_data.pop(next(k for k in meta.storage_data if k.fqn == NAME))


def lose_tensor(meta, files):
    del meta.state_dict_metadata["model.norm.weight"]


def add_tensor(name):
    def change(meta, files):
        meta.state_dict_metadata[name] = \
            meta.state_dict_metadata["model.norm.weight"]
    return change


def swap_items(meta, files):
    """The first chunk's bytes are those of a chunk of another shape."""
    place(meta).__dict__.update(next(
        v for k, v in meta.storage_data.items()
        if k.fqn == "model.norm.weight").__dict__)


CASES = {
    "good": lambda meta, files: None,
    "wrapped": wrap,
    "overlap": change_chunk(offsets=Size((0, 11))),
    "copies": change_chunk(offsets=Size((0, 0)), sizes=Size((130, 24))),
    "beside": change_tensor(chunks=[
        Chunk(offsets=Size((0, 0)), sizes=Size((130, 1)))] + [
        Chunk(offsets=Size((r, c)), sizes=Size((1, 1)))
        for r in range(130) for c in range(1, 24)]),
    "beyond": change_chunk(sizes=Size((65, 13))),
    "flat": change_chunk(sizes=Size((65,))),
    "negative": change_chunk(offsets=Size((-1, 0))),
    "hole": lose_chunk,
    "no-chunks": change_tensor(chunks=3),
    "no-size": change_tensor(size="large"),
    "huge": change_tensor(size=Size((1 << 40, 1 << 40))),
    "shape": change_tensor(size=Size((130, 25))),
    "int64": change_tensor(properties=Properties(dtype=TYPES["I64"])),
    "other-type": change_tensor(properties=Properties(dtype=TYPES["F16"])),
    "other-item": swap_items,
    "no-place": lose_place,
    "up": change_place(relative_path="../__0_0.distcp"),
    "root": change_place(relative_path="/etc/passwd"),
    "gone-file": change_place(relative_path="__7_0.distcp"),
    "far": change_place(offset=1 << 40),
    "short": change_place(length=200),
    "no-length": change_place(length=-1),
    "compressed": change_place(transform_descriptors=["zstd"]),
    "lost": lose_tensor,
    "more": add_tensor("model.layers.9.mlp.up_proj.weight"),
    "twice": add_tensor("model.norm._orig_mod.weight"),
    "no-model": rename("policy_"),
    "two-models": rename("actor.", "critic."),
    "system": lambda meta, files: meta.__dict__.update(planner_data=System()),
    "cut-file": lambda meta, files: files.update(
        {"__0_0.distcp": files["__0_0.distcp"][:1000]}),
    "other-file": lambda meta, files: files.update(
        {"__0_0.distcp": bytes(len(files["__0_0.distcp"]))}),
}
BYTES = {
    "cut": lambda data: data[:len(data) // 2],
    "empty": lambda data: b"",
    "dict": lambda data: pickle.dumps({}),
    "protocol-0": lambda data: pickle.dumps({}, 0),
}


def main(path, model, case="good"):
    meta, files = build(model)
    CASES.get(case, CASES["good"])(meta, files)
    os.makedirs(path)
    for name, data in files.items():
        with open(f"{path}/{name}", "wb") as f:
            f.write(data)
    data = pickle.dumps(meta, 4)
    with open(f"{path}/.metadata", "wb") as f:
        f.write(BYTES[case](data) if case in BYTES else data)
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(f"{model}/{name}", path)


if __name__ == "__main__":
    main(*sys.argv[1:])
