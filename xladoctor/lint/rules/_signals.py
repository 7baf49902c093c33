"""Flags that handlers of signals set: each process gets a signal between other lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, walk
from xladoctor.lint.model.dotted import dotted_text, is_name
from xladoctor.lint.model.taken import targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel

_REGISTERS = "signal.signal"


def asks_signal(model: FileModel, test: cst.BaseExpression) -> cst.CSTNode | None:
    """The registration of a handler that sets what a condition asks for: a name, ``self.stop``.

    ``event.is_set()`` of an event that the handler sets too.
    """
    for call in model.calls(_REGISTERS):
        handler = call.argument(1, "handler")
        function = model.value(handler).function if handler is not None else None
        if function is None or function.node not in model.tree.order:
            continue
        flags = set(_sets(model, function))
        if any(_asks(part, flags) for part in _parts(model, test)):
            return call.node
    return None


def _sets(model: FileModel, handler: Function) -> Iterator[str]:
    """What a handler sets to true: ``STOP`` that it declares global, ``self.stop``, an event."""
    declared = {
        item.name.value
        for node in walk(handler.node)
        if isinstance(node, cst.Global | cst.Nonlocal)
        for item in node.names
    }
    for node in walk(handler.node):
        if isinstance(node, cst.Assign) and is_name(node.value, "True"):
            for target in targets(node):
                if isinstance(target, cst.Attribute) or (
                    isinstance(target, cst.Name) and target.value in declared
                ):
                    yield dotted_text(target) or ""
        elif isinstance(node, cst.Call) and model.call(node).method == "set" and not node.args:
            receiver = model.call(node).receiver
            yield (dotted_text(receiver) or "") if receiver is not None else ""


def _parts(model: FileModel, test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What a condition asks itself: what it gives to a function may be agreed on there."""
    if isinstance(test, cst.BooleanOperation):
        yield from _parts(model, test.left)
        yield from _parts(model, test.right)
    elif isinstance(test, cst.UnaryOperation):
        yield from _parts(model, test.expression)
    elif isinstance(test, cst.Call):
        call = model.call(test)
        if call.method == "is_set" and call.receiver is not None:
            yield call.receiver
    else:
        yield test


def _asks(part: cst.BaseExpression, flags: set[str]) -> bool:
    text = dotted_text(part) if isinstance(part, cst.Name | cst.Attribute) else None
    return text is not None and text in flags
