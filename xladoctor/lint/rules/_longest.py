"""The longest sample of a batch, as collate functions compute it to pad to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, walk
from xladoctor.lint.model.helpers import only_returned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Names from the batch of a collate function to what is measured.
_DEPTH = 3


def longest(model: FileModel, function: Function, call: CallSite) -> Iterator[cst.Call]:
    """``max(len(x) for x in batch)`` that the arguments of a call come from.

    It stands in them or is bound, alone and once, to a name in them.

    Args:
        model: The file.
        function: Makes batches.
        call: Makes something of a shape.
    """
    for value in (*call.positional, *call.keywords.values()):
        for part in _lengths(value):
            yield from _made(model, function, part)


def filled_up(
    model: FileModel, function: Function, node: cst.BinaryOperation
) -> Iterator[cst.Call]:
    """The longest length in ``row + [pad] * (n - len(row))``, of the product in it."""
    if isinstance(node.operator, cst.Multiply) and isinstance(node.left, cst.List):
        for part in _lengths(node.right):
            yield from _made(model, function, part)


def _made(model: FileModel, function: Function, part: cst.BaseExpression) -> Iterator[cst.Call]:
    made: cst.CSTNode | None = part
    if isinstance(part, cst.Name):
        bindings = model.bindings(part.value, part)
        made = bindings[0].node if len(bindings) == 1 else None
    batch = _batch(function)
    if batch is None or not isinstance(made, cst.Call):
        return
    helper = model.call(made).target
    if isinstance(helper, Function):
        # ``width = longest(texts)``, of a helper that only gives it back.
        told, handed = only_returned(helper), _batch(helper)
        given = model.call(made).argument(0, handed)
        if handed is None or given is None or not _is_of_batch(model, given, batch, _DEPTH):
            return
        if isinstance(told, cst.Call) and _is_capped_longest(model, told, handed):
            yield made
    elif _is_capped_longest(model, made, batch):
        yield made


def _is_capped_longest(model: FileModel, call: cst.Call, batch: str) -> bool:
    """Also ``min(max(map(len, rows)), limit)``: as long as the longest, up to the limit."""
    capped = model.name(call.func) == "builtins.min"
    inner = [item.value for item in call.args] if capped else [call]
    return any(isinstance(one, cst.Call) and _is_longest(model, one, batch) for one in inner)


def _batch(function: Function) -> str | None:
    """The parameter that holds the samples: the first one, but for the object."""
    taken = int(function.owner is not None and not function.is_static)
    return next(iter(function.parameters[taken:]), None)


def _lengths(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The lengths in an argument: ``n``, ``(n, 8)``, ``(0, n - len(x))``; nothing computed."""
    if isinstance(value, cst.Tuple | cst.List):
        for element in value.elements:
            yield from _lengths(element.value)
    elif isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Subtract):
        yield value.left
    else:
        yield value


def _is_longest(model: FileModel, call: cst.Call, batch: str) -> bool:
    """``max`` over the batch of each sample's ``len``, ``.shape[n]`` or ``.size(n)``."""
    if model.name(call.func) != "builtins.max" or len(call.args) != 1:
        return False
    return _are_lengths(model, call.args[0].value, batch)


def _are_lengths(model: FileModel, every: cst.BaseExpression, batch: str) -> bool:
    if isinstance(every, cst.Name):
        bindings = model.bindings(every.value, every)
        made = bindings[0].node if len(bindings) == 1 else None
        return isinstance(made, cst.ListComp) and _are_lengths(model, made, batch)
    if isinstance(every, cst.Call) and model.name(every.func) == "builtins.map":
        given = [item.value for item in every.args]
        by_len = len(given) == 2 and model.name(given[0]) == "builtins.len"
        return by_len and _is_of_batch(model, given[1], batch, _DEPTH)
    if not isinstance(every, cst.GeneratorExp | cst.ListComp) or every.for_in.ifs:
        return False
    return _is_length(every.elt) and _is_of_batch(model, every.for_in.iter, batch, _DEPTH)


def _is_length(length: cst.BaseExpression) -> bool:
    if isinstance(length, cst.Subscript):
        held = length.value
        return isinstance(held, cst.Attribute) and held.attr.value == "shape"
    if not isinstance(length, cst.Call):
        return False
    if isinstance(length.func, cst.Attribute):
        return length.func.attr.value == "size" and len(length.args) == 1
    return isinstance(length.func, cst.Name) and length.func.value == "len"


def _is_of_batch(model: FileModel, node: cst.BaseExpression, batch: str, depth: int) -> bool:
    """The batch, or ``texts, labels = zip(*batch)`` and ``[row["ids"] for row in batch]``."""
    if not isinstance(node, cst.Name):
        return False
    if node.value == batch:
        return True
    sources = [_source(model, binding.node) for binding in model.bindings(node.value, node)]
    return len(sources) == 1 and any(
        isinstance(part, cst.Name) and _is_of_batch(model, part, batch, depth - 1)
        for part in (walk(sources[0]) if sources[0] is not None and depth else ())
    )


def _source(model: FileModel, node: cst.CSTNode) -> cst.BaseExpression | None:
    """What is assigned: to a name, or to a tuple of names of which this is one."""
    if not isinstance(node, cst.Name):
        return node if isinstance(node, cst.ListComp | cst.Call) else None
    for parent in model.tree.ancestors(node):
        if isinstance(parent, cst.Assign):
            return parent.value
        if not isinstance(parent, cst.Tuple | cst.Element | cst.AssignTarget):
            return None
    return None
