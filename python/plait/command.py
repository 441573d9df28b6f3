# SPDX-License-Identifier: Apache-2.0
"""plan() and estimate(): what the command plait prints with --json.

The documents of --json are pinned (fields are added, never renamed) and have
every figure; libplait's functions have fifteen of them, no --auto and no site
file, and a program would have to find a library of one soname. So a result
here is the command's, whatever version is installed.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import warnings
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .errors import Error

Value = Union[str, int, float, bool, None, "os.PathLike[str]"]


def _find() -> str:
    path = os.environ.get("PLAIT_COMMAND") or shutil.which("plait")
    if not path:
        raise Error("there is no command plait in PATH: install plait-tools, "
                    "or set PLAIT_COMMAND to its path")
    return path


def _arguments(options: Mapping[str, Any]) -> List[str]:
    """tp=2, sequence=True, set={"train.steps": 10} as the command's options."""
    words: List[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, Mapping):
            for key, of in value.items():
                words += [flag, f"{key}={_text(of)}"]
        elif isinstance(value, (list, tuple)):
            for of in value:
                words += [flag, _text(of)]
        else:
            words += [flag, _text(value)]
    return words


def _text(value: Any) -> str:
    """A value as YAML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(v) for v in value) + "]"
    return os.fspath(value) if hasattr(value, "__fspath__") else str(value)


def _said(stderr: bytes) -> Tuple[List[str], List[str]]:
    """The warnings and the other lines, without their prefixes."""
    warned: List[str] = []
    others: List[str] = []
    for line in stderr.decode(errors="replace").strip().splitlines():
        text = line[len("plait: "):] if line.startswith("plait: ") else line
        if text.startswith("warning: "):
            warned.append(text[len("warning: "):])
        else:
            others.append(text)
    return warned, others


def _run(what: str, options: Mapping[str, Any]) -> Any:
    command = [_find(), what, "--json", *_arguments(options)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              check=False)
    except OSError as why:
        raise Error(f"cannot start {command[0]}: {why.strerror}") from None
    warned, said = _said(done.stderr)
    if done.returncode:
        text = said[0] if said else f"exit status {done.returncode}"
        raise Error(f"plait {what}: {text}" if not text.startswith(what)
                    else text)
    for line in warned + said:
        warnings.warn(line, stacklevel=3)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise Error(f"{command[0]} {what} --json printed no JSON document; is "
                    "it the command of Plait?") from None


def plan(*, tp: Union[int, str, None] = None, cp: Union[int, str, None] = None,
         ep: Optional[int] = None, dp: Union[int, str, None] = None,
         pp: Union[int, str, None] = None, nodes: Optional[str] = None,
         tasks_per_node: Union[int, str, None] = None,
         fabric: Value = None, rank_order: Optional[str] = None,
         placement: Optional[str] = None, model: Value = None,
         gpu_type: Optional[str] = None,
         **options: Any) -> Any:
    """Which rank runs where, and what it costs: ``plait plan --json``.

    Other options have the command's names with _ for -: ``node_hwloc``,
    ``node_nccl``, ``site``, ``auto=True``, ``gpus``, ``micro_batch`` and so
    on; ``set={"model.layers": 24}`` changes keys of the model's file. With
    ``auto=True`` the result is the list of the best layouts. What the command
    warns of, as a node that is in no switch, is a UserWarning.
    """
    return _run("plan", {
        "tp": tp, "cp": cp, "ep": ep, "dp": dp, "pp": pp, "nodes": nodes,
        "tasks_per_node": tasks_per_node, "fabric": fabric,
        "rank_order": rank_order, "placement": placement, "model": model,
        "gpu_type": gpu_type, **options})


def estimate(model: Value, *, gpus: Optional[int] = None,
             gpu_type: Optional[str] = None,
             tp: Optional[int] = None, cp: Optional[int] = None,
             ep: Optional[int] = None, dp: Union[int, str, None] = None,
             pp: Optional[int] = None,
             set: Union[Mapping[str, Any], Sequence[str], None] = None,
             **options: Any) -> Dict[str, Any]:
    """Parameters, memory and time of training: ``plait estimate --json``.

    ``model`` is a plait.yaml or a config.json. Other options have the
    command's names with _ for -: ``micro_batch``, ``global_batch``, ``zero``,
    ``recompute``, ``schedule``, ``virtual``, ``precision``, ``framework``,
    ``sequence=True``, ``tokens``, ``site``.
    """
    found: Dict[str, Any] = _run("estimate", {
        "model": model, "gpus": gpus, "gpu_type": gpu_type, "tp": tp,
        "cp": cp, "ep": ep, "dp": dp, "pp": pp, "set": set, **options})
    return found
