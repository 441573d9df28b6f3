# SPDX-License-Identifier: Apache-2.0
"""plait.checkpoint.load(): a checkpoint's tensors, whatever layout wrote it.

A checkpoint is a folder with manifest.json and one safetensors file for each
rank that wrote. The text "plait" in a file's metadata says which part of the
whole tensor each of its entries is: the elements ``run`` = [first, count] of
the rows of a ``box`` that begins at ``begin``. What sticks out of the whole
tensor is padding (runtime/checkpoint/tensor_slice.h).
"""
from __future__ import annotations

import json
import mmap
import os
import re
import stat
import zlib
from typing import (Any, BinaryIO, Dict, Iterator, List, NamedTuple, Optional,
                    Tuple, Union)

from .errors import Error

_STATE = re.compile(r"(replica\.[0-9]+\.)?optim\.")
_MOST = 1 << 50  # a number in a head
_STEP_MOST = 2**63 - 1
_MAPPED = 100  # files at a time
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
    offset: int  # of the first byte in the file
    where: str  # the file

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


def _step(name: str) -> Optional[int]:
    """The step in the name of a checkpoint's folder; None: it is no such."""
    if not re.fullmatch(r"step-[0-9]+", name):
        return None
    step = int(name[len("step-"):])
    return step if step <= _STEP_MOST else None


def _latest(folder: str) -> int:
    """The step that was saved last. Later ones are of a run that was given
    up, or are being written."""
    name = os.path.join(folder, "latest")
    try:
        step = _step(os.readlink(name))
    except FileNotFoundError:
        return _STEP_MOST
    except OSError:
        step = None
    if step is None:
        raise Error(f"{name}: not a link to a checkpoint in this directory")
    return step


def _has_manifest(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "manifest.json"))


def find(path: Union[str, "os.PathLike[str]"]) -> str:
    """The checkpoint that ``path`` is, or the one saved last below it.

    It leads through no link: a save of a running job that changes one does
    not change what is read.
    """
    path = os.fspath(path)
    if not os.path.isdir(path):
        raise Error(f"{path}: no such folder")
    path = os.path.realpath(path)
    if _has_manifest(path):
        return path
    latest = _latest(path)
    try:
        names = os.listdir(path)
    except OSError as why:
        raise Error(f"{path}: {why.strerror}") from None
    found = [(step, name) for step, name in zip(map(_step, names), names)
             if step is not None and step <= latest and
             _has_manifest(os.path.join(path, name))]
    if found:
        return os.path.realpath(os.path.join(path, max(found)[1]))
    what = ("Hugging Face's model: convert it by plait convert --format plait"
            if os.path.exists(os.path.join(path, "config.json"))
            else "no complete checkpoint")
    raise Error(f"{path}: it has no manifest.json and no step-NUMBER with "
                f"one: {what}")


def _open(name: str) -> BinaryIO:
    """A file to read; Error: it is none, such as a pipe that nobody writes
    to."""
    try:
        file = open(name, "rb", opener=lambda path, flags: os.open(
            path, flags | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as why:
        raise Error(f"{name}: {why.strerror}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Error(f"{name}: not a regular file")
    return file


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
            "/" not in entry["name"] and entry["name"].isprintable() and
            type(entry.get("bytes")) is int and
            isinstance(entry.get("crc32"), str))


def _read_manifest(path: str) -> Dict[str, Any]:
    name = os.path.join(path, "manifest.json")
    try:
        with _open(name) as file:
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
    names = {entry["name"] for entry in manifest["files"]}
    if len(names) < len(manifest["files"]):
        raise Error(f"{name}: it names a file twice")
    return manifest


def _read_head(file: BinaryIO, name: str, size: int) -> Tuple[Dict[str, Any],
                                                              int]:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _HEAD_MOST):
        raise Error(f"{name}: truncated, or not a safetensors file")
    try:
        head = json.loads(file.read(length).decode())
        places = json.loads(head.pop("__metadata__", {}).get("plait", "{}"))
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise Error(f"{name}: corrupt header") from None
    if not isinstance(head, dict) or not isinstance(places, dict):
        raise Error(f"{name}: corrupt header: it is no JSON object")
    return {"tensors": head, "places": places}, 8 + length


def _check_sum(file: BinaryIO, name: str, wanted: str) -> None:
    crc, block = 0, b" "
    file.seek(0)
    while block:
        block = file.read(1 << 20)
        crc = zlib.crc32(block, crc)
    if f"{crc:08x}" != wanted.lower():
        raise Error(f"{name}: corrupt: its bytes do not match the manifest's "
                    "checksum")


def _read_file(path: str, entry: Dict[str, Any],
               verify: bool) -> Tuple[Dict[str, Any], int]:
    """A file's head, and where its data begin."""
    name = os.path.join(path, entry["name"])
    with _open(name) as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry["bytes"]:
            raise Error(f"{name}: truncated or changed: it has {size} "
                        f"bytes, and the manifest says {entry['bytes']}")
        try:
            found = _read_head(file, name, size)
            if verify:
                _check_sum(file, name, entry["crc32"])
        except OSError as why:
            raise Error(f"{name}: {why.strerror}") from None
    return found


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


def _slice(name: str, key: str, head: Dict[str, Any], size: int,
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
                shape[0] * shape[1] > 0 and
                count == stored[0] * stored[1] and low % 4 == 0 and
                start + high <= size and high - low == 4 * count)
    except (KeyError, TypeError, ValueError):
        dtype, fits = "F32", False
    if dtype != "F32":
        raise Error(f"{name}: tensor {key} is {dtype}, not F32")
    if not fits:
        raise Error(f"{name}: corrupt: the shape or offset of tensor {key} "
                    "does not match its data")
    return _Slice(key, shape, begin, box, first, count, start + low, name)


def _slices(path: str, manifest: Dict[str, Any], verify: bool,
            state: bool) -> Iterator[_Slice]:
    for entry in manifest["files"]:
        name = os.path.join(path, entry["name"])
        head, start = _read_file(path, entry, verify)
        for key in head["tensors"]:
            if state or not _STATE.match(key):
                yield _slice(name, key, head, entry["bytes"], start)


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


class _Files:
    """The data of files. The first _MAPPED that are asked for are mapped, and
    pieces of the others are read: Python keeps a descriptor for each map."""

    def __init__(self, np: Any) -> None:
        self.np = np
        self.maps: Dict[str, mmap.mmap] = {}

    def view(self, part: _Slice, count: int) -> Any:
        """The first ``count`` elements, which may be written to."""
        try:
            if part.where not in self.maps:
                with _open(part.where) as file:
                    if len(self.maps) >= _MAPPED:
                        return self.read(file, part, count)
                    # A private copy of what is written to: tensors may be
                    # changed, and the file stays as it is.
                    self.maps[part.where] = mmap.mmap(
                        file.fileno(), 0, access=mmap.ACCESS_COPY)
            return self.np.frombuffer(self.maps[part.where], "<f4", count,
                                      part.offset)
        except OSError as why:
            raise Error(f"{part.where}: {why.strerror}") from None
        except ValueError:  # the file has become shorter
            raise Error(f"{part.where}: truncated or changed") from None

    def read(self, file: BinaryIO, part: _Slice, count: int) -> Any:
        """The same, in memory of its own."""
        file.seek(part.offset)
        data = self.np.fromfile(file, "<f4", count)
        if len(data) < count:
            raise ValueError
        return data


def _copy(part: _Slice, whole: Any, filled: Any, files: _Files) -> None:
    data, at = files.view(part, part.length), 0
    for row, column, rows, columns in _spans(part):
        block = data[at:at + rows * columns].reshape(rows, columns)
        at += rows * columns
        top, left = part.begin[0] + row, part.begin[1] + column
        rows = max(min(rows, part.shape[0] - top), 0)
        columns = max(min(columns, part.shape[1] - left), 0)
        where = files.np.s_[top:top + rows, left:left + columns]
        whole[where] = block[:rows, :columns]
        filled[where] = True


def _tensor(parts: List[_Slice], files: _Files) -> Any:
    np, one = files.np, parts[0]
    shape: Tuple[int, ...] = one.shape if one.shape[0] > 1 else one.shape[1:]
    for part in parts:
        if part.shape != one.shape:
            raise Error(f"{part.where}: tensor {part.name} is "
                        f"{part.shape[0]} x {part.shape[1]} there, and "
                        f"{one.shape[0]} x {one.shape[1]} in {one.where}")
    size = one.shape[0] * one.shape[1]
    for part in parts:
        if part.is_whole():
            return files.view(part, size).reshape(shape)
    # Before the memory for it is taken: a corrupt head can say any size.
    missing = sum(part.length for part in parts) < size
    if not missing:
        whole = np.empty(one.shape, "<f4")
        filled = np.zeros(one.shape, bool)
        for part in parts:
            _copy(part, whole, filled, files)
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
    it, and read from the disk when it is used (of the first 100 files; of
    others it is read at once); writing to it changes neither the file nor
    what others see. ``verify`` reads everything, and compares
    the checksums.
    """
    files = _Files(_numpy())
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
        found[name] = convert(_tensor(parts[name], files))
    return found


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise Error("torch tensors need torch: pip install torch, or leave "
                    "out kind=\"torch\"") from None
    return torch
