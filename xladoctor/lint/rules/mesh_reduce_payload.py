"""XLA431: NumPy values given to ``xm.mesh_reduce``, which it can no longer read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xladoctor.lint.model import FileModel, Problem

    #: Says of a function's dotted name and number of arguments whether it gives such a value.
    _Maker = Callable[[str, int], bool]

#: torch 2.6 (and with it torch_xla 2.6) made ``weights_only=True`` the default of ``torch.load``.
_SINCE = (2, 6)
#: NumPy functions of one number when no axis is given.
_NUMBERS = frozenset(f"numpy.{name}" for name in ("average", "mean", "median", "std", "var"))
_REDUCE = "torch_xla.core.xla_model.mesh_reduce"
_DEEPEST = 4


@rule("XLA431")
def mesh_reduce_payload(model: FileModel) -> Iterator[Problem]:
    """Find ``xm.mesh_reduce`` of NumPy numbers and arrays."""
    if model.target < _SINCE:
        return
    for call in model.calls(_REDUCE):
        data = call.argument(1, "data")
        if data is None or not _all_made(model, data, _is_numpy):
            continue
        number = _all_made(model, data, _is_number)
        text = model.tree.text(data).strip()
        yield model.problem(
            data,
            f"{snippet(model, data)} is a NumPy value: xm.mesh_reduce raises UnpicklingError, as "
            "torch.load since 2.6 reads back tensors and plain Python values only",
            suggestion="give float(x) of a number, x.tolist() or torch.from_numpy(x) of an array",
            fix=model.fix("Give a Python number", model.replace(data, f"float({text})"))
            if number
            else None,
        )


def _is_numpy(name: str, arguments: int) -> bool:  # noqa: ARG001  (see _Maker)
    return name.startswith("numpy.")


def _is_number(name: str, arguments: int) -> bool:
    """Whether a function certainly gives one NumPy number, and not an array."""
    return name in _NUMBERS and arguments == 1  # a second one is the axis


def _all_made(model: FileModel, node: cst.BaseExpression, by: _Maker, depth: int = 0) -> bool:
    """Whether all roads to an expression begin with calls of one sort: names, functions, returns.

    What ``xm.mesh_reduce`` gives is what its reducing function gives.
    """
    if depth > _DEEPEST:
        return False
    if isinstance(node, cst.Call):
        call = model.call(node)
        if call.name == _REDUCE:
            function = call.argument(2, "reduce_fn")
            return function is not None and by(model.name(function) or "", 1)
        if isinstance(call.target, Function):
            return _all_returned(model, call.target, by, depth)
        return not call.has_star and by(call.name or "", len(node.args))
    if isinstance(node, cst.Name):
        bindings = model.names.lookup(node.value, model.tree.scopes[node]) or []
        return bool(bindings) and all(
            item.kind == "assign"
            and isinstance(item.node, cst.BaseExpression)
            and _all_made(model, item.node, by, depth + 1)
            for item in bindings
        )
    return False


def _all_returned(model: FileModel, function: Function, by: _Maker, depth: int) -> bool:
    found = [
        part
        for part in walk(function.node)
        if isinstance(part, cst.Return) and model.function_of(part) is function
    ]
    return bool(found) and all(
        item.value is not None and _all_made(model, item.value, by, depth + 1) for item in found
    )
