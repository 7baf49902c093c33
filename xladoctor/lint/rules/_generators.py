"""Generators of the program that hand on what a device loader gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.loops import HOT
from xladoctor.lint.rules._fetched import is_loaded_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Loop

#: Methods with which an object is gone over.
_ITERATES = ("__iter__", "__next__")


def hands_on_device_loader(model: FileModel, loop: Loop) -> bool:
    """Whether the next element of what a loop goes over comes out of a device loader.

    ``for x in batches(loader)``, ``x = next(it)``, ``for x in Feed(loader)``, where the function or
    the object's ``__iter__`` goes over the device loader itself: its next batch ends the graph.
    """
    if loop.kind not in HOT:
        return False
    functions = set(_generators(model, loop))
    written = {*_written(model, loop)}
    return bool(functions or written) and any(
        inner.iterates.kind is Kind.DEVICE_LOADER
        and (inner.function in functions or inner.node in written)
        for inner in model.loops_of_program
    )


def _written(model: FileModel, loop: Loop) -> Iterator[cst.CSTNode]:
    """``for x in (row for row in loader)``: the inner loop, also where a name stands for it."""
    over = loop.node.iter if isinstance(loop.node, cst.For) else None
    parts = [*walk(over)] if over is not None else []
    for part in parts[:]:
        parts += model.assigned_to(part) if isinstance(part, cst.Name | cst.Attribute) else ()
    yield from (part.for_in for part in parts if isinstance(part, cst.GeneratorExp))


def makes_its_own(model: FileModel, loop: Loop) -> bool:
    """Whether a loop goes over batches that code of the program puts together, on the host.

    ``for x in chunks(rows, 8)``, ``for x in (row.to(device) for row in rows)``: no device loader
    is behind these, where the program has none.
    """
    if not isinstance(loop.node, cst.For) or is_loaded_for(model):
        return False
    sources: list[cst.CSTNode] = [loop.node.iter]
    for part in walk(loop.node.iter):
        if isinstance(part, cst.Name | cst.Attribute):
            sources += model.assigned_to(part)
    return any(
        isinstance(source, cst.GeneratorExp)
        or (isinstance(source, cst.Call) and any(True for _ in _called(model, source)))
        for source in sources
    )


def _generators(model: FileModel, loop: Loop) -> Iterator[Function]:
    for part in walk(loop.node):
        if isinstance(part, cst.Call):
            yield from _called(model, part)
        elif isinstance(part, cst.Name | cst.Attribute):
            for made in model.assigned_to(part):
                yield from _called(model, made) if isinstance(made, cst.Call) else ()
    over = loop.node.iter if isinstance(loop.node, cst.For) else None
    for node in () if over is None else (part for part in walk(over)):
        instance = model.value(node).instance if isinstance(node, cst.BaseExpression) else None
        if instance is not None:
            methods = (model.method(instance.cls, name) for name in _ITERATES)
            yield from (method for method in methods if method is not None)


def _called(model: FileModel, call: cst.Call) -> Iterator[Function]:
    """The generators that a call makes, also within another (``enumerate(batches(loader))``)."""
    for part in walk(call):
        target = model.call(part).target if isinstance(part, cst.Call) else None
        if isinstance(target, Function) and (
            any(isinstance(inner, cst.Yield) for inner in walk(target.node, into_functions=False))
            or any(isinstance(given, cst.GeneratorExp) for given in returned(target))
        ):
            yield target
