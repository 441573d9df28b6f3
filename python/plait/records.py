# SPDX-License-Identifier: Apache-2.0
"""metrics(): the lines of plait-train's metrics file."""
from __future__ import annotations

import glob
import json
import os
from typing import Any, Dict, List, Union

from .errors import Error


class Metrics(List[Dict[str, Any]]):
    """Rows of steps, as ``pandas.DataFrame(rows)`` takes them.

    ``skipped`` counts lines that are no JSON objects with a step: the last
    one of a run that is being written, or that ended in the middle of it.
    ``path`` is the file.
    """

    def __init__(self, path: str, rows: List[Dict[str, Any]],
                 skipped: int) -> None:
        super().__init__(rows)
        self.path = path
        self.skipped = skipped


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _row(line: bytes) -> Dict[str, Any]:
    """The object of a line; ValueError: it is none."""
    row = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise ValueError("no step")
    return row


def _has_steps(path: str) -> bool:
    """A directory may have JSON lines of other kinds, such as data."""
    try:
        with open(path, "rb") as file:
            _row(file.readline())
        return True
    except (OSError, ValueError, RecursionError):
        return False


def _find(run: str) -> str:
    if not os.path.isdir(run):
        return run
    found = [p for p in sorted(glob.glob(os.path.join(glob.escape(run),
                                                      "*.jsonl")))
             if _has_steps(p)]
    if not found:
        raise Error(f"{run}: it contains no metrics: no file NAME.jsonl of "
                    "plait-train's log.metrics")
    if len(found) > 1:
        names = ", ".join(os.path.basename(p) for p in found[:4])
        raise Error(f"{run}: it has {len(found)} metrics files; name one of "
                    f"them ({names}{', ...' if len(found) > 4 else ''})")
    return found[0]


def metrics(run: Union[str, "os.PathLike[str]"]) -> Metrics:
    """The rows of a run: ``run`` is its metrics file, or the folder of it.

    A step that was made again after a restart has a row for each time, in the
    order in which they were written.
    """
    path = _find(os.fspath(run))
    rows: List[Dict[str, Any]] = []
    skipped = 0
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    rows.append(_row(line))
                except (ValueError, RecursionError):
                    skipped += bool(line.strip())
    except OSError as why:
        raise Error(f"{path}: {why.strerror}") from None
    if not rows and skipped:
        raise Error(f"{path}: none of its {skipped} lines is a JSON object "
                    "with a step; it is no metrics file of plait-train")
    return Metrics(path, rows, skipped)
