"""XLA417: ``xm.mesh_reduce`` cannot unpickle NumPy values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned, made_by
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_MESH_REDUCE = "torch_xla.core.xla_model.mesh_reduce"
#: The release whose ``torch.load`` reads weights only, unless asked otherwise.
_SINCE = (2, 6)
_DEEPEST = 4
_SCALARS = frozenset(
    f"numpy.{name}" for name in ("mean", "sum", "max", "min", "median", "std", "var", "float64")
)


@rule("XLA417")
def mesh_reduce_payload(model: FileModel) -> Iterator[Problem]:
    """Find NumPy scalars and arrays that are given to ``xm.mesh_reduce``."""
    if model.target < _SINCE:
        return
    for call in model.calls(_MESH_REDUCE):
        data = call.argument(1, "data")
        if data is None:
            continue
        made = made_by(model, data)
        scalar = _always_scalar(model, data)
        array = made is not None and made.method == "numpy" and model.value(data).kind is Kind.ARRAY
        if not scalar and not array:
            continue
        fix = None
        if scalar and isinstance(data, cst.Name | cst.Call):
            written = f"float({model.tree.text(data).strip()})"
            fix = model.fix("Make it a Python number", model.replace(data, written))
        yield model.problem(
            data,
            f"{snippet(model, data)} is a NumPy value: xm.mesh_reduce reads it back with "
            "torch.load, which refuses all but weights since torch 2.6 (UnpicklingError)",
            suggestion="give float(value), or torch.from_numpy(array)",
            fix=fix,
        )


def _always_scalar(model: FileModel, node: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether all roads to an expression begin with ``np.mean(x)`` and the like.

    Through names, the file's own functions and what ``xm.mesh_reduce`` made of such a value.
    """
    if depth > _DEEPEST:
        return False
    if isinstance(node, cst.Call):
        call = model.call(node)
        if call.name == _MESH_REDUCE:
            function = call.argument(2, "reduce_fn")
            return function is not None and model.name(function) in _SCALARS
        if isinstance(call.target, Function):
            return _returns_scalar(model, call.target, depth)
        return call.name in _SCALARS and len(node.args) == 1  # a second one is the axis
    if isinstance(node, cst.Name):
        values = assigned(model, node)
        return bool(values) and all(_always_scalar(model, value, depth + 1) for value in values)
    return False


def _returns_scalar(model: FileModel, function: Function, depth: int) -> bool:
    found = [
        part
        for part in walk(function.node)
        if isinstance(part, cst.Return) and model.function_of(part) is function
    ]
    return bool(found) and all(
        item.value is not None and _always_scalar(model, item.value, depth + 1) for item in found
    )
