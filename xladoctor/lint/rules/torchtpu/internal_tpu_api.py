"""XLA860: functions of ``torch.tpu`` that only PyTorch itself may call."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model.dotted import string
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model import FileModel, Problem

_ALLOWED = "TORCH_TPU_ALLOW_LEGACY_DEVICE_APIS"


@functools.cache
def _internal() -> Mapping[str, str]:
    """Full names to what TorchTPU's own message names instead."""
    names: Mapping[str, str] = catalogue.table("torch_tpu")["internal"]
    return names


@rule("XLA860")
def internal_tpu_api(model: FileModel) -> Iterator[Problem]:
    """Find calls of ``torch.tpu`` functions that raise outside of PyTorch."""
    if any(string(text) == _ALLOWED for text in model.tree.strings):
        return
    for node in model.nodes(cst.Call):
        name = model.name(node.func)
        instead = _internal().get(name or "")
        if instead is None or tolerated(model, node):
            continue
        written = model.tree.text(node.func).strip()
        torch = model.spelled("torch", node)  # ``torch.accelerator`` needs no import of its own
        change = model.replace(node.func, f"{torch}{instead.removeprefix('torch')}")
        yield model.problem(
            node,
            f"{written} is internal to TorchTPU: called by a program, it raises RuntimeError",
            suggestion=f"{instead}, which is the same on every accelerator",
            fix=model.fix(f"Call {instead}", change if torch else None, safe=True),
        )
