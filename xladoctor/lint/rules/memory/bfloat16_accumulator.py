"""XLA712: a running sum in numbers that XLA_USE_BF16 has made bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._environment import SHELL, is_off, settings
from xladoctor.lint.rules._reads import costly_loop, loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.model.problems import Place

_VARIABLE = "XLA_USE_BF16"
_COMPARISONS = frozenset({"eq", "ne", "gt", "ge", "lt", "le"})
_FLOATS = frozenset({"float", "mean"})


@rule("XLA712")
def bfloat16_accumulator(model: FileModel) -> Iterator[Problem]:
    """Find sums over batches of device tensors in files that set ``XLA_USE_BF16``."""
    if not model.is_xla:
        return
    setting = next(_set_here(model), None)
    if setting is None:
        return
    for node in model.nodes(cst.AugAssign):
        if not isinstance(node.operator, cst.AddAssign):
            continue
        value = model.value(node.value)
        if not value.is_device_tensor or _counts(model, node.value):
            continue
        loop = costly_loop(model, node)
        if loop is None or not isinstance(node.target, cst.Name | cst.Attribute):
            continue
        yield model.problem(
            node,
            f"XLA_USE_BF16 keeps {snippet(model, node.target)} in 8 significant bits: measured, a "
            "sum of ones stops at 256, and a running loss goes wrong long before",
            suggestion="append the detached values to a list and add them up on the host "
            "(torch.stack(losses).cpu().float().mean()), or leave the variable out",
            related=[setting, loop_place(model, loop)],
        )


def _set_here(model: FileModel) -> Iterator[Place]:
    for name, spot, _ in settings(model):
        if name == _VARIABLE and not model.guards(spot) and not is_off(model, spot):
            yield model.place(spot, "float32 becomes bfloat16")
    for number, line in model.shell:
        if line.strip().startswith("!"):
            continue  # a shell of its own, gone after the line
        if any(match["name"] == _VARIABLE for match in SHELL.finditer(line)):
            yield model.place_of_row(number, "float32 becomes bfloat16")


def _counts(model: FileModel, node: cst.BaseExpression) -> bool:
    """``(predicted == labels).sum()``: 64-bit integers, which are exact."""
    compares = floats = False
    for part in walk(node):
        if isinstance(part, cst.Comparison):
            compares = True
        if isinstance(part, cst.Call):
            method = model.call(part).method
            compares = compares or method in _COMPARISONS
            floats = floats or method in _FLOATS
    return compares and not floats
