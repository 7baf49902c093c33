"""Slices from behind that may begin before their tensor does: ``ids[:, -block_size:]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.knowledge import JOINS
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._reads import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel

#: What conditions ask of a tensor that may still be short.
_SIZES = frozenset({"size", "shape", "numel", "ndim"})
_LEN = "builtins.len"


def before_the_start(model: FileModel) -> Iterator[tuple[cst.Subscript, cst.CSTNode]]:
    """The slices of device tensors that grow from few elements in the same loop, and what grows.

    ``for _ in range(n): window = ids[:, -block_size:]; ...; ids = torch.cat((ids, new), dim=1)``.
    """
    for node in model.nodes(cst.Subscript):
        held, loop = node.value, model.loop(node)
        if loop is None or not isinstance(held, cst.Name) or not _reaches_back(model, node):
            continue
        if not model.value(held).is_device_tensor or not_here(model, node):
            continue
        grows = next(_grown_in(model, loop.node, held), None)
        if grows is not None and not _asks_for_size(model, node, held):
            yield node, grows


def _reaches_back(model: FileModel, node: cst.Subscript) -> bool:
    """``-block_size:``, with a name or a number of two and more."""
    return any(
        isinstance(bound, cst.UnaryOperation)
        and isinstance(bound.operator, cst.Minus)
        and (
            isinstance(bound.expression, cst.Name | cst.Attribute)
            or _is_many(model, bound.expression)
        )
        for bound in _lower(node)
    )


def _lower(node: cst.Subscript) -> Iterator[cst.BaseExpression]:
    for element in node.slice:
        part = element.slice
        if isinstance(part, cst.Slice) and part.lower is not None and part.upper is None:
            yield part.lower


def _is_many(model: FileModel, node: cst.BaseExpression) -> bool:
    number = model.literal(node)
    return isinstance(number, int) and number > 1


def _grown_in(model: FileModel, loop: cst.CSTNode, held: cst.Name) -> Iterator[cst.CSTNode]:
    """``held = torch.cat((held, new), dim=1)`` in a loop."""
    for node in walk(loop, into_functions=False):
        if not isinstance(node, cst.Assign) or not same_name(node.targets[0].target, held):
            continue
        joined = node.value
        first = joined.args[0].value if isinstance(joined, cst.Call) and joined.args else None
        if not isinstance(joined, cst.Call) or model.name(joined.func) not in JOINS:
            continue
        parts = first.elements if isinstance(first, cst.Tuple | cst.List) else ()
        if any(same_name(part.value, held) for part in parts):
            yield node


def _asks_for_size(model: FileModel, node: cst.Subscript, held: cst.Name) -> bool:
    """``ids if ids.size(1) <= block_size else ids[:, -block_size:]``."""
    return any(
        (isinstance(part, cst.Attribute) and part.attr.value in _SIZES)
        or (isinstance(part, cst.Call) and model.name(part.func) == _LEN)
        for guard in model.guards(node)
        for part in walk(guard.test)
        if any(same_name(inner, held) for inner in walk(guard.test) if isinstance(inner, cst.Name))
    )
