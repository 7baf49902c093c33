"""XLA416: a device by its number, which each process counts from 0 for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla
from xladoctor.lint.model.dotted import string
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_XLA = "xla:"


@rule("XLA416")
def device_index(model: FileModel) -> Iterator[Problem]:
    """Find ``xm.xla_device(1)``, ``torch_xla.device(1)`` and ``"xla:1"``."""
    if not model.is_xla or model.target < (2, 0):
        return
    for call in model.calls("torch_xla.core.xla_model.xla_device", "torch_xla.device"):
        index = call.argument(0, "index" if call.name == "torch_xla.device" else "n")
        number = model.literal(index) if index is not None else None
        if isinstance(number, int) and not isinstance(number, bool) and number >= 1:
            yield _problem(model, call.node, number)
    for node in model.tree.strings:
        text = string(node)
        if not isinstance(text, str) or not text.startswith(_XLA):
            continue
        number = int(text[4:]) if text[4:].isdecimal() else 0
        used = isinstance(model.parent(node), cst.Arg | cst.AssignTarget | cst.Assign)
        if number >= 1 and used and model.on_xla(node) is OnXla.YES:
            yield _problem(model, node, number)


def _problem(model: FileModel, node: cst.CSTNode, number: int) -> Problem:
    return model.problem(
        node,
        f"device {number} does not exist in a process with one device, which is what torch_xla "
        "gives each core: this raises IndexError",
        suggestion="torch_xla.device(), which is this core's own",
    )
