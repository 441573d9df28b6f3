# SPDX-License-Identifier: Apache-2.0
"""plait.checkpoint.load(): a checkpoint's tensors, whatever layout wrote it.

A checkpoint is a folder with manifest.json and one safetensors file for each
rank that wrote. The text "plait" in a file's metadata says which part of the
whole tensor each of its entries is: the elements ``run`` = [first, count] of
the rows of a ``box`` that begins at ``begin``. What sticks out of the whole
tensor is padding (runtime/checkpoint/tensor_slice.h).
"""
from __future__ import annotations

import glob
import json
import mmap
import os
import re
import zlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from .errors import Error

_STATE = re.compile(r"(replica\.[0-9]+\.)?optim\.")
_MOST = 1 << 50  # a number in a head
_HEAD_MOST = 100000000  # the format's own limit on the JSON


class Tensors(Dict[str, Any]):
    """Tensors by name; ``path``, ``step`` and ``manifest`` say of what."""

    def __init__(self, path: str, manifest: Dict[str, Any]) -> None:
        super().__init__()
        self.path = path
        self.manifest = manifest
        self.step: int = manifest["step"]


class _Slice(NamedTuple):
    name: str
    shape: Tuple[int, int]  # of the whole tensor
    begin: Tuple[int, int]
    box: Tuple[int, int]
    first: int
    length: int
    file: mmap.mmap
    offset: int
    where: str  # the file, for errors

    def is_whole(self) -> bool:
        """Whether its first elements are the tensor's, the rest padding."""
        return (self.begin == (0, 0) and self.first == 0 and
                self.length >= self.shape[0] * self.shape[1] and
                (self.box[1] == self.shape[1] or self.shape[0] == 1))


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise Error("plait.checkpoint.load() needs numpy: pip install "
                    "numpy") from None
    return numpy


def find(path: Union[str, "os.PathLike[str]"]) -> str:
    """The checkpoint that ``path`` is, or the one saved last below it."""
    path = os.fspath(path)
    complete = [p for p in (path, os.path.join(path, "latest"))
                if os.path.exists(os.path.join(p, "manifest.json"))]
    steps = [p for p in glob.glob(os.path.join(glob.escape(path), "step-*",
                                               "manifest.json"))
             if re.fullmatch(r"step-[0-9]+",
                             os.path.basename(os.path.dirname(p)))]
    if complete:
        return complete[0]
    if steps:
        return os.path.dirname(max(steps, key=lambda p: int(
            os.path.basename(os.path.dirname(p))[len("step-"):])))
    if not os.path.isdir(path):
        raise Error(f"{path}: no such folder")
    what = ("Hugging Face's model: convert it by plait convert --format plait"
            if os.path.exists(os.path.join(path, "config.json"))
            else "no complete checkpoint")
    raise Error(f"{path}: it has no manifest.json and no step-NUMBER with "
                f"one: {what}")


def _is_sealed(text: bytes) -> bool:
    """The checksum is over the text with zeros in its own place. One of an
    earlier version has none."""
    marker = b'"checksum": "'
    at = text.rfind(marker)
    if at < 0:
        return b'"settings"' not in text
    at += len(marker)
    crc = zlib.crc32(text[:at] + b"00000000" + text[at + 8:].rstrip(b"\n"))
    return b"%08x" % crc == text[at:at + 8]


def _is_file(entry: Any) -> bool:
    return (isinstance(entry, dict) and isinstance(entry.get("name"), str) and
            "/" not in entry["name"] and type(entry.get("bytes")) is int and
            isinstance(entry.get("crc32"), str))


def _read_manifest(path: str) -> Dict[str, Any]:
    name = os.path.join(path, "manifest.json")
    try:
        with open(name, "rb") as file:
            text = file.read()
        manifest = json.loads(text.decode())
    except OSError as why:
        raise Error(f"{name}: {why.strerror}") from None
    except (ValueError, RecursionError):
        raise Error(f"{name}: corrupt: it is no JSON") from None
    if (not isinstance(manifest, dict) or manifest.get("format") != "plait" or
            manifest.get("version") != 1 or
            type(manifest.get("step")) is not int or
            not isinstance(manifest.get("files"), list) or
            not all(map(_is_file, manifest["files"]))):
        raise Error(f"{name}: not the manifest of a plait checkpoint, version "
                    "1")
    if not _is_sealed(text):
        raise Error(f"{name}: edited or corrupt: its text does not match its "
                    "checksum")
    return manifest


def _map_file(path: str, entry: Dict[str, Any], verify: bool) -> mmap.mmap:
    name = os.path.join(path, entry["name"])
    try:
        with open(name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry["bytes"]:
                raise Error(f"{name}: truncated or changed: it has {size} "
                            f"bytes, and the manifest says {entry['bytes']}")
            # A private copy of what is written to: tensors may be changed,
            # and the file stays as it is.
            data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    except OSError as why:
        raise Error(f"{name}: {why.strerror}") from None
    except ValueError:
        raise Error(f"{name}: it is empty") from None
    if verify and f"{zlib.crc32(data):08x}" != entry["crc32"].lower():
        raise Error(f"{name}: corrupt: its bytes do not match the manifest's "
                    "checksum")
    return data


def _read_head(name: str, data: mmap.mmap) -> Tuple[Dict[str, Any], int]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _HEAD_MOST):
        raise Error(f"{name}: truncated, or not a safetensors file")
    try:
        head = json.loads(data[8:8 + length].decode())
        places = json.loads(head.pop("__metadata__", {}).get("plait", "{}"))
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise Error(f"{name}: corrupt header") from None
    if not isinstance(head, dict) or not isinstance(places, dict):
        raise Error(f"{name}: corrupt header: it is no JSON object")
    return {"tensors": head, "places": places}, 8 + length


def _pair(of: Any) -> Tuple[int, int]:
    if (not isinstance(of, list) or len(of) != 2 or
            not all(type(n) is int and 0 <= n <= _MOST for n in of)):
        raise ValueError
    return of[0], of[1]


def _stored(entry: Dict[str, Any]) -> Tuple[int, int]:
    shape = entry["shape"]
    if not isinstance(shape, list) or len(shape) > 2:
        raise ValueError
    return _pair([1, 1][len(shape):] + shape)


def _slice(name: str, key: str, head: Dict[str, Any], file: mmap.mmap,
           start: int) -> _Slice:
    entry, place = head["tensors"][key], head["places"].get(key)
    try:
        dtype, stored = entry["dtype"], _stored(entry)
        low, high = _pair(entry["data_offsets"])
        shape, begin, box = stored, (0, 0), stored
        first, count = 0, stored[0] * stored[1]
        if place is not None:
            shape, begin, box = (_pair(place[k])
                                 for k in ("shape", "begin", "box"))
            first, count = _pair(place["run"])
        fits = (first + count <= box[0] * box[1] and box[0] * box[1] > 0 and
                count == stored[0] * stored[1] and low % 4 == 0 and
                start + high <= len(file) and high - low == 4 * count)
    except (KeyError, TypeError, ValueError):
        dtype, fits = "F32", False
    if dtype != "F32":
        raise Error(f"{name}: tensor {key} is {dtype}, not F32")
    if not fits:
        raise Error(f"{name}: corrupt: the shape or offset of tensor {key} "
                    "does not match its data")
    return _Slice(key, shape, begin, box, first, count, file, start + low,
                  name)


def _slices(path: str, manifest: Dict[str, Any], verify: bool,
            state: bool) -> Iterator[_Slice]:
    for entry in manifest["files"]:
        name = os.path.join(path, entry["name"])
        file = _map_file(path, entry, verify)
        head, start = _read_head(name, file)
        for key in head["tensors"]:
            if state or not _STATE.match(key):
                yield _slice(name, key, head, file, start)


def _spans(part: _Slice) -> Iterator[Tuple[int, int, int, int]]:
    """The run as blocks of rows of the box: row, column, rows, columns."""
    width, at, left = part.box[1], part.first, part.length
    while left:
        row, column = divmod(at, width)
        rows = left // width if column == 0 else 0
        columns = width if rows else min(left, width - column)
        yield row, column, max(rows, 1), columns
        at += max(rows, 1) * columns
        left -= max(rows, 1) * columns


def _view(part: _Slice, count: int, np: Any) -> Any:
    return np.frombuffer(part.file, "<f4", count, part.offset)


def _copy(part: _Slice, whole: Any, filled: Any, np: Any) -> None:
    data, at = _view(part, part.length, np), 0
    for row, column, rows, columns in _spans(part):
        block = data[at:at + rows * columns].reshape(rows, columns)
        at += rows * columns
        top, left = part.begin[0] + row, part.begin[1] + column
        rows = max(min(rows, part.shape[0] - top), 0)
        columns = max(min(columns, part.shape[1] - left), 0)
        where = np.s_[top:top + rows, left:left + columns]
        whole[where] = block[:rows, :columns]
        filled[where] = True


def _tensor(parts: List[_Slice], np: Any) -> Any:
    one = parts[0]
    shape: Tuple[int, ...] = one.shape if one.shape[0] > 1 else one.shape[1:]
    for part in parts:
        if part.shape != one.shape:
            raise Error(f"{part.where}: tensor {part.name} is "
                        f"{part.shape[0]} x {part.shape[1]} there, and "
                        f"{one.shape[0]} x {one.shape[1]} in {one.where}")
    size = one.shape[0] * one.shape[1]
    for part in parts:
        if part.is_whole():
            return _view(part, size, np).reshape(shape)
    # Before the memory for it is taken: a corrupt head can say any size.
    missing = sum(part.length for part in parts) < size
    if not missing:
        whole = np.empty(one.shape, "<f4")
        filled = np.zeros(one.shape, bool)
        for part in parts:
            _copy(part, whole, filled, np)
        missing = not filled.all()
    if missing:
        raise Error(f"{os.path.dirname(one.where)}: incomplete: no file has "
                    f"all of tensor {one.name}")
    return whole.reshape(shape)


def load(path: Union[str, "os.PathLike[str]"], *, kind: str = "numpy",
         state: bool = False, verify: bool = False,
         names: Optional[List[str]] = None) -> Tensors:
    """The tensors of a checkpoint, whole, in fp32, whatever layout wrote it.

    ``path`` is a checkpoint (DIR/step-00000020) or a folder of checkpoints,
    of which the one saved last is taken. ``kind`` is "numpy" or "torch".
    With ``state`` the optimizer's state is there too, as "optim.STATE.NAME";
    ``names`` picks tensors. A tensor that one file has whole is mapped from
    it, and read from the disk when it is used; writing to it changes neither
    the file nor what others see. ``verify`` reads everything, and compares
    the checksums.
    """
    np = _numpy()
    if kind not in ("numpy", "torch"):
        raise Error(f'plait.checkpoint.load(): kind="{kind}" must be "numpy" '
                    'or "torch"')
    convert = _torch().from_numpy if kind == "torch" else lambda a: a
    path = find(path)
    manifest = _read_manifest(path)
    parts: Dict[str, List[_Slice]] = {}
    for part in _slices(path, manifest, verify, state or names is not None):
        parts.setdefault(part.name, []).append(part)
    for name in names or ():
        if name not in parts:
            raise Error(f"{path}: it has no tensor {name}")
    found = Tensors(path, manifest)
    for name in (parts if names is None else names):
        found[name] = convert(_tensor(parts[name], np))
    return found


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise Error("torch tensors need torch: pip install torch, or leave "
                    "out kind=\"torch\"") from None
    return torch
