"""XLA421: the number of the core is a number of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._core_made import core_made
from xladoctor.lint.rules._exact import in_order, indices
from xladoctor.lint.rules._graph_constants import graph_constants
from xladoctor.lint.rules._parted import is_parted
from xladoctor.lint.rules._pending import waits_in_graph
from xladoctor.lint.rules._reads import costly_loop, loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.model.problems import Place


_FUNCTION = "torch.autograd.Function"


@rule("XLA421")
def different_graphs(model: FileModel) -> Iterator[Problem]:
    """Find arithmetic of device tensors with the core's number, and places by it, in hot loops."""
    if model.spmd:
        return
    yield from _core_made(model)
    for node in model.nodes(cst.BinaryOperation, cst.Subscript, cst.Call):
        number = next((x for x in _constants(model, node) if _is_core_number(model, x)), None)
        if number is None:
            continue
        place = (
            _beside_collective(model, node)
            or _in_loop(model, node)
            or _before_collective(model, node)
        )
        if place is None:
            continue
        yield model.problem(
            node,
            f"{snippet(model, number)} is a different constant on each core, so the cores run "
            "different programs: with a collective in them the run hangs",
            suggestion="make it data: torch.tensor(number).to(device), once before the loop",
            related=[place],
        )


def _core_made(model: FileModel) -> Iterator[Problem]:
    """Tensors that some cores fill, and all reduce."""
    for made in core_made(model) if model.is_xla else ():
        yield model.problem(
            made.node,
            "some cores make this tensor by operations that the others do not trace: their "
            "programs differ, and the collective in them never completes",
            suggestion="make it on the host and move it (torch.zeros(...).to(device)), which is "
            "data, or send one core's values with xm.collective_broadcast([tensor])",
            related=[
                model.place(made.test, "another answer on each core"),
                model.place(made.call.node, "the collective"),
            ],
        )


def _constants(model: FileModel, node: cst.CSTNode) -> Sequence[cst.BaseExpression]:
    """The numbers of an operation on a device tensor that may be constants of its graph."""
    if not isinstance(node, cst.BinaryOperation):
        found = graph_constants(model, node, likely=True)
        if not found and isinstance(node, cst.Subscript) and is_parted(model, node.value):
            return [*indices(node)]
        return found
    sides = (node.left, node.right)
    tensor = next((side for side in sides if model.value(side).is_device_tensor), None)
    return () if tensor is None else [side for side in sides if side is not tensor]


def _in_loop(model: FileModel, node: cst.CSTNode) -> Place | None:
    """The hot loop in which every core runs a node."""
    loop = costly_loop(model, node)
    return None if loop is None or model.on_every_core(node) is None else loop_place(model, loop)


def _beside_collective(model: FileModel, node: cst.CSTNode) -> Place | None:
    """The collective that waits in the same part of a ``torch.autograd.Function``.

    Which is of the step, whoever calls it.
    """
    function = model.function_of(node)
    if function is None or function.owner is None or not model.is_xla:
        return None
    if not model.inherits(function.owner, _FUNCTION):
        return None
    inside = (call for call in model.calls_in(function.node) if waits_in_graph(model, call))
    return next((model.place(call.node, "beside this collective") for call in inside), None)


def _before_collective(model: FileModel, node: cst.CSTNode) -> Place | None:
    """The collective that is given the tensor: ``rows[rank] = x``, ``xm.all_reduce("sum", rows)``.

    Each of them is in the graph, however seldom it runs.
    """
    function = model.function_of(node)
    held = node.value if isinstance(node, cst.Subscript) else None
    if function is None or not isinstance(held, cst.Name) or not model.is_xla:
        return None
    for call in model.calls_of(function):
        given = [part for argument in call.node.args for part in walk(argument.value)]
        if (
            any(is_name(part, held.value) for part in given)
            and waits_in_graph(model, call)
            and in_order(model, node, call.node)
            and model.on_every_core(call.node) is not None
        ):
            return model.place(call.node, "the collective that it is given to")
    return None


def _is_core_number(model: FileModel, node: cst.BaseExpression) -> bool:
    """The core's number, or arithmetic of numbers with it."""
    if isinstance(node, cst.BinaryOperation):
        return _is_core_number(model, node.left) or _is_core_number(model, node.right)
    return model.value(node).kind is Kind.CORE_NUMBER and isinstance(
        node, cst.Name | cst.Call | cst.Attribute
    )
