"""Sums over all cores that are divided by what one core has alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.rules._exact import given_last, same_name
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

_XM = "torch_xla.core.xla_model."
_SUMS = frozenset({"builtins.sum", "numpy.sum", "numpy.add.reduce", "math.fsum"})
#: Methods and calls that only bring a number to the host.
_READS = frozenset({"item", "cpu", "detach", "float", "numpy"})
_NUMBERS = frozenset({"builtins.float", "builtins.int"})


def divided_by_share(
    model: FileModel,
) -> Iterator[tuple[cst.BinaryOperation, CallSite, cst.BaseExpression]]:
    """``xm.mesh_reduce("loss", total, sum) / len(loader)``: as many times too large as cores.

    Yields:
        The division, the reduction, and the loader, whose length is that of one core.
    """
    for node in model.nodes(cst.BinaryOperation):
        if not isinstance(node.operator, cst.Divide) or model.on_every_core(node) is None:
            continue
        if isinstance(model.parent(node), cst.BinaryOperation) or _is_divided_on(model, node):
            continue  # by the number of cores, maybe
        loader = _counted(model, node.right)
        total = _sum_over_cores(model, node.left) if loader is not None else None
        if loader is not None and total is not None:
            yield node, total, loader


def _counted(model: FileModel, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The loader of ``len(loader)``, also ``max(len(loader), 1)`` and by a name."""
    found = _held(model, node)
    if isinstance(found, cst.IfExp):
        found = found.body
    if not isinstance(found, cst.Call) or not found.args:
        return None
    call = model.call(found)
    if call.name == "builtins.max":
        inner = (_counted(model, argument) for argument in call.positional)
        return next((one for one in inner if one is not None), None)
    if call.name != "builtins.len" or not call.positional:
        return None
    held = call.positional[0]
    named = last_name(held).lower().endswith(("loader", "_dl", "batches"))
    return held if named or model.value(held).is_loader else None


def _sum_over_cores(model: FileModel, node: cst.BaseExpression) -> CallSite | None:
    """The reduction that adds up one number of each core, of which nothing was divided before."""
    found = _held(model, node)
    call = model.call(found) if isinstance(found, cst.Call) else None
    if call is None:
        return None
    if call.name is None and call.method in _READS and call.receiver is not None:
        return _sum_over_cores(model, call.receiver)
    if call.name in _NUMBERS and call.positional:
        return _sum_over_cores(model, call.positional[0])
    data = None
    if call.name == _XM + "mesh_reduce":
        how = call.argument(2, "reduce_fn")
        data = call.argument(1, "data") if how is not None and _adds_up(model, how) else None
    elif call.name == _XM + "all_reduce":
        how, scale = call.argument(0, "reduce_type"), call.argument(2, "scale")
        plain = scale is None or model.literal(scale) == 1
        adds = how is not None and (
            model.literal(how) == "sum" or model.name(how) == _XM + "REDUCE_SUM"
        )
        data = call.argument(1, "inputs") if plain and adds else None
    if data is None or _is_mean(model, data, found):
        return None
    return call


def _adds_up(model: FileModel, how: cst.BaseExpression) -> bool:
    """``sum``, ``np.sum``, ``lambda values: sum(values)``."""
    if isinstance(how, cst.Lambda):
        body = model.call(how.body) if isinstance(how.body, cst.Call) else None
        return body is not None and body.name in _SUMS
    return model.name(how) in _SUMS


def _is_mean(model: FileModel, data: cst.BaseExpression, reduced: cst.BaseExpression) -> bool:
    """Whether something was divided before, or it is not known what was added up."""
    held = data if isinstance(data, cst.Name) else None
    made = (
        [data, *(one for one in model.assigned_to(held) if one is not reduced)] if held else [data]
    )
    return any(
        isinstance(part, cst.Divide)
        or (isinstance(part, cst.Attribute) and part.attr.value in {"avg", "mean"})
        for one in made
        for part in walk(one)
    )


def _held(model: FileModel, node: cst.BaseExpression) -> cst.BaseExpression:
    """What a name holds where it stands: what was assigned to it last, or at all."""
    if isinstance(node, cst.Name):
        return given_last(model, node) or the_source(model, node)
    return node


def _is_divided_on(model: FileModel, node: cst.BinaryOperation) -> bool:
    """``mean = total / len(loader)``, and then ``mean /= world_size``."""
    parent = model.parent(node)
    target = parent.targets[0].target if isinstance(parent, cst.Assign) else None
    return any(
        same_name(one.target, target)
        for one in model.nodes(cst.AugAssign)
        if isinstance(one.operator, cst.DivideAssign)
        and model.function_of(one) is model.function_of(node)
    )
