"""XLA421: the number of the core is a number of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import costly_loop, loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA421")
def different_graphs(model: FileModel) -> Iterator[Problem]:
    """Find arithmetic of device tensors with the core's number in hot loops."""
    if model.spmd:
        return
    for node in model.nodes(cst.BinaryOperation):
        sides = (node.left, node.right)
        tensor = next((side for side in sides if model.value(side).is_device_tensor), None)
        number = next((side for side in sides if side is not tensor), node.right)
        if tensor is None or not _is_core_number(model, number):
            continue
        loop = costly_loop(model, node)
        if loop is None or model.on_every_core(node) is None:
            continue
        yield model.problem(
            node,
            f"{snippet(model, number)} is a different constant on each core, so the cores run "
            "different programs: with a collective in them the run hangs",
            suggestion="make it data: torch.tensor(number).to(device), once before the loop",
            related=[loop_place(model, loop)],
        )


def _is_core_number(model: FileModel, node: cst.BaseExpression) -> bool:
    """The core's number, or arithmetic of numbers with it."""
    if isinstance(node, cst.BinaryOperation):
        return _is_core_number(model, node.left) or _is_core_number(model, node.right)
    return model.value(node).kind is Kind.CORE_NUMBER and isinstance(
        node, cst.Name | cst.Call | cst.Attribute
    )
