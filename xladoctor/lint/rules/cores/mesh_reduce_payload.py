"""XLA417: ``xm.mesh_reduce`` cannot unpickle NumPy values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Function, Kind, walk
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned, made_by, same_name
from xladoctor.lint.rules._reads import snippet
from xladoctor.lint.rules._refused_payloads import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_MESH_REDUCE = "torch_xla.core.xla_model.mesh_reduce"
#: The release whose ``torch.load`` reads weights only, unless asked otherwise.
_SINCE = (2, 6)
_DEEPEST = 4
_JOINS = frozenset(f"numpy.{name}" for name in ("concatenate", "vstack", "hstack", "stack"))
_ARRAYS = _JOINS | {"numpy.append"}
#: What programs call the mean of a meter, and its last value and sum.
_OF_METERS = frozenset({"avg", "average", "mean", "sum", "total", "val"})
_SCALARS = frozenset(
    f"numpy.{name}" for name in ("mean", "sum", "max", "min", "median", "std", "var", "float64")
)

#: Functions of torch that take one tensor, no list of them (each raised TypeError when run).
_OF_ONE_TENSOR = frozenset(
    f"torch.{name}"
    for name in ("mean", "sum", "max", "min", "amax", "amin", "prod", "median", "std", "var")
)


@rule("XLA417")
def mesh_reduce_payload(model: FileModel) -> Iterator[Problem]:
    """Find NumPy values that are given to ``xm.mesh_reduce``, and what reduces no list.

    And what other collectives refuse.
    """
    if model.is_xla and not model.spmd and not model.led_by:
        yield from refused(model)
    if model.target < _SINCE:
        return
    for call in model.calls(_MESH_REDUCE):
        data = call.argument(1, "data")
        reduces = call.argument(2, "reduce_fn")
        if reduces is not None and model.name(reduces) in _OF_ONE_TENSOR:
            yield model.problem(
                reduces,
                f"xm.mesh_reduce gives this the list of all cores' values, and "
                f"{snippet(model, reduces)} takes a tensor: TypeError",
                suggestion="lambda values: torch.stack(values).mean(0)",
            )
        if data is None:
            continue
        made = made_by(model, data)
        scalar = _always_scalar(model, data)
        array = made is not None and made.method == "numpy" and model.value(data).kind is Kind.ARRAY
        array = array or (not scalar and _always_array(model, data))
        if not scalar and not array:
            continue
        fix = _as_tensor(model, call, data) if array else None
        if scalar and isinstance(data, cst.Name | cst.Call):
            written = f"float({model.tree.text(data).strip()})"
            fix = model.fix("Make it a Python number", model.replace(data, written), safe=True)
        yield model.problem(
            data,
            f"{snippet(model, data)} is a NumPy value: xm.mesh_reduce reads it back with "
            "torch.load, which refuses all but weights since torch 2.6 (UnpicklingError)",
            suggestion="give float(value), or torch.from_numpy(array)",
            fix=fix,
        )


def _as_tensor(model: FileModel, call: CallSite, data: cst.BaseExpression) -> Fix | None:
    """Send a tensor where NumPy joins what comes back: that makes an array of tensors again."""
    function = call.argument(2, "reduce_fn")
    written = spell(model, call.node, "torch.from_numpy")
    if function is None or model.name(function) not in _JOINS or written is None:
        return None
    text = f"{written[0]}({model.tree.text(data).strip()})"
    return model.fix("Send it as a tensor", model.replace(data, text), written[1], safe=False)


def _always_array(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a name holds what ``.numpy()`` or NumPy's joining of arrays gave, or None."""
    if not isinstance(node, cst.Name):
        return False
    values = [x for x in assigned(model, node) if not _reduces(model, x, node)]
    calls = [model.call(value) for value in values if isinstance(value, cst.Call)]
    others = [value for value in values if not isinstance(value, cst.Call)]
    return (
        bool(calls)
        and all(model.literal(value) is None for value in others)
        and all(call.method == "numpy" or call.name in _ARRAYS for call in calls)
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
    if isinstance(node, cst.Attribute):
        return node.attr.value in _OF_METERS and _meter_of_scalars(model, node, depth)
    if isinstance(node, cst.Name):
        values = [x for x in assigned(model, node) if not _reduces(model, x, node)]
        return bool(values) and all(_always_scalar(model, value, depth + 1) for value in values)
    return False


def _reduces(model: FileModel, value: cst.BaseExpression, name: cst.Name) -> bool:
    """``x = xm.mesh_reduce("x", x, own)``: it was given what ``x`` was before."""
    call = model.call(value) if isinstance(value, cst.Call) else None
    if call is None or call.name != _MESH_REDUCE:
        return False
    return same_name(call.argument(1, "data"), name)


def _meter_of_scalars(model: FileModel, node: cst.Attribute, depth: int) -> bool:
    """Whether ``meter.avg`` is that of a meter that is given NumPy scalars, in the same function.

    What the meter adds up is a NumPy scalar then too, unless its class turns them into numbers.
    """
    value = model.value(node.value)
    if isinstance(value.origin, cst.Call):
        made = model.call(value.origin).target
        if isinstance(made, Class) and _makes_numbers(made):
            return False
    if not isinstance(node.value, cst.Name):
        return False
    return any(
        same_name(call.receiver, node.value)
        and call.function is model.function_of(node)
        and bool(call.positional)
        and _always_scalar(model, call.positional[0], depth + 1)
        for call in model.methods("update", "add")
    )


def _makes_numbers(made: Class) -> bool:
    words = (part.value for part in walk(made.node) if isinstance(part, cst.Name))
    return not {"float", "item"}.isdisjoint(words)


def _returns_scalar(model: FileModel, function: Function, depth: int) -> bool:
    found = [
        part
        for part in walk(function.node)
        if isinstance(part, cst.Return) and model.function_of(part) is function
    ]
    return bool(found) and all(
        item.value is not None and _always_scalar(model, item.value, depth + 1) for item in found
    )
