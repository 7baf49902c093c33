"""Batches that a loop cuts out of data itself: ``images[start:start + 32]``, ``rows[picked]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules._exact import DICE, indices
from xladoctor.lint.rules._sources import of_parameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Function, Loop

#: How many names a place is followed through.
_DEPTH = 4
#: Kinds of value that may lie on the host as a whole.
_ON_HOST = frozenset({Kind.UNKNOWN, Kind.CPU_TENSOR, Kind.ARRAY, Kind.CONTAINER, Kind.OBJECT})
#: What draws places of PyTorch's.
_DRAWS = frozenset({"torch.randint", "torch.randperm", "torch.multinomial"})


def is_cut(model: FileModel, loop: Loop, node: cst.Subscript) -> bool:
    """Whether a step cuts a part out of data on the host, another one each time.

    The place is drawn, or computed of what the step loop counts. A place on the device says that
    the data is there too.
    """
    if loop.kind not in {LoopKind.STEP, LoopKind.EVAL} or not _may_be_on_host(model, node.value):
        return False
    return any(_changes(model, loop, place, _DEPTH) for place in indices(node))


def gives_cut(model: FileModel, loop: Loop, function: Function) -> bool:
    """Whether a function gives back what it cuts out of data: ``return x[picked], y[picked]``."""
    return any(
        isinstance(part, cst.Subscript) and is_cut(model, loop, part)
        for value in returned(function)
        for source in (value, *_named_in(model, value))
        for part in walk(source)
    )


def _named_in(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What the names in an expression are bound to."""
    for part in walk(node):
        if isinstance(part, cst.Name):
            yield from model.assigned_to(part)


def _may_be_on_host(model: FileModel, node: cst.BaseExpression) -> bool:
    value = model.value(node)
    there = value.made_of_device or any(road.is_device_tensor for road in value.roads)
    return value.kind in _ON_HOST and not value.holds_device_tensor and not there


def _changes(model: FileModel, loop: Loop, node: cst.BaseExpression, depth: int) -> bool:
    """Whether a place is drawn, or computed of the loop's own target."""
    if model.value(node).holds_device_tensor:
        return False
    for part in walk(node):
        if isinstance(part, cst.Call):
            name = model.name(part.func) or ""
            if name in _DRAWS or name.startswith(DICE):
                return True
        elif isinstance(part, cst.Name) and depth and _name_changes(model, loop, part, depth - 1):
            return True
    return False


def _name_changes(model: FileModel, loop: Loop, name: cst.Name, depth: int) -> bool:
    if loop.kind is LoopKind.STEP and _is_counted(model, loop, name):
        return True
    for binding in model.bindings(name.value, name):
        if binding.kind == "assign" and isinstance(binding.node, cst.BaseExpression):
            if _changes(model, loop, binding.node, depth):
                return True
        elif binding.kind == "other":
            part = model.taken(binding.node)
            over = part.line if part is not None else None
            if not isinstance(over, cst.For | cst.CompFor):
                continue
            # The turns of a denoising loop pick numbers of a schedule, and no batches.
            counts = over is loop.node and loop.kind is LoopKind.STEP
            if counts or _changes(model, loop, over.iter, depth):
                return True
        elif binding.kind == "param" and depth:
            given = of_parameter(model, name) or ()
            if any(_changes(model, loop, one, depth - 1) for one in given):
                return True
    return False


def _is_counted(model: FileModel, loop: Loop, name: cst.Name) -> bool:
    """``start += batch_size`` in each turn."""
    if not isinstance(loop.node, cst.For | cst.While):
        return False
    if model.function_of(name) is not loop.function:
        return False
    return any(
        is_name(part.target, name.value)
        for part in walk(loop.node.body, into_functions=False)
        if isinstance(part, cst.AugAssign)
    )
