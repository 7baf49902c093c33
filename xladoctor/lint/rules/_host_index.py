"""Device tensors that meet what is on the host: places made there, operands that stayed there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import Kind
from xladoctor.lint.model.knowledge import PARAMETER
from xladoctor.lint.rules._batches import is_of_data
from xladoctor.lint.rules._exact import given_last, made_by
from xladoctor.lint.rules._filled import computed_of_constants
from xladoctor.lint.rules._reads import costly_loop, loop_place, often, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Problem

_ARITHMETIC = cst.Add | cst.Subtract | cst.Multiply | cst.Divide
#: What makes places, of nothing that the host alone knows.
_PLACES = frozenset(
    f"torch.{name}" for name in ("arange", "randperm", "randint", "tril_indices", "triu_indices")
)
#: The same of NumPy's, and the position of what says how many.
_DRAWN_PLACES = {
    "numpy.random.choice": 1,
    "numpy.random.randint": 2,
    "numpy.random.permutation": 0,
    "numpy.arange": 0,
}
#: What makes such places on the device.
_ON_DEVICE = {"range": "arange", "choice": "randint", "permutation": "randperm"}
#: What may give a tensor without dimensions, which counts as a number.
_MAY_BE_NUMBERS = frozenset(
    {"mean", "sum", "max", "min", "norm", "prod", "std", "var", "median", "dot", "stack"}
)


def indexed_from_host(model: FileModel) -> Iterator[Problem]:
    """``values[range(n), actions]`` and ``x[torch.randperm(n)]`` of device tensors."""
    for node in model.nodes(cst.Subscript):
        for element in node.slice:
            index = element.slice.value if isinstance(element.slice, cst.Index) else None
            made = None if index is None else _range(model, node, index) or _places(model, index)
            if made is None or not model.value(node.value).is_device_tensor:
                continue
            loop = costly_loop(model, node)
            if loop is None or costly_loop(model, made.node) is None:
                continue
            ranged = made.last == "range"
            by = "torch makes a tensor of this range" if ranged else snippet(model, made.node)
            they = "it is" if ranged else "they are"
            yield model.problem(
                made.node if ranged else node,
                f"{by}{'' if ranged else ' makes these places'} on the CPU, and {they} uploaded "
                f"{often(loop)}",
                suggestion=f"torch.{_ON_DEVICE.get(made.last, made.last)}(..., device=x.device)",
                related=[
                    loop_place(model, loop),
                    *([] if ranged else [model.place(made.node, "made here")]),
                ],
            )
            break


def _range(model: FileModel, node: cst.Subscript, index: cst.BaseExpression) -> CallSite | None:
    """``range(n)`` or ``list(range(n))`` beside other places."""
    made = model.call(index) if isinstance(index, cst.Call) and len(node.slice) > 1 else None
    if made is not None and made.name == "builtins.list" and made.positional:
        inner = made.positional[0]
        made = model.call(inner) if isinstance(inner, cst.Call) else None
    return made if made is not None and made.name == "builtins.range" else None


def _places(model: FileModel, index: cst.BaseExpression) -> CallSite | None:
    """The call that makes places on the host: itself, or by the one name that it has."""
    made = made_by(model, _part_of(model, index))
    if made is not None and made.name in _DRAWN_PLACES and _draws_several(made):
        return made
    if model.value(index).kind is not Kind.CPU_TENSOR:
        return None
    if made is None or made.has_star or not (made.name in _PLACES or _counts(model, made)):
        return None
    return None if "device" in made.keywords else made


def _part_of(model: FileModel, index: cst.BaseExpression) -> cst.BaseExpression:
    """``torch.randperm(n)`` of ``torch.randperm(n)[:k]``, also of a name of it."""
    made = model.assigned_once(index) if isinstance(index, cst.Name | cst.Attribute) else index
    held = made.value if isinstance(made, cst.Subscript) else None
    return held if isinstance(held, cst.Call) else index


def _draws_several(made: CallSite) -> bool:
    """``np.random.choice(n, 4)``: without a size it is one number, a constant of the graph."""
    return made.argument(_DRAWN_PLACES[made.name or ""], "size") is not None


def _counts(model: FileModel, made: CallSite) -> bool:
    """``torch.tensor([i for i in range(n) for j in range(i)])``: counted, of nothing else."""
    data = made.argument(0, "data") if made.name in {"torch.tensor", "torch.as_tensor"} else None
    over = data.for_in if isinstance(data, cst.ListComp) else None
    while over is not None:
        if not isinstance(over.iter, cst.Call) or model.name(over.iter.func) != "builtins.range":
            return False
        if over.inner_for_in is None:
            return isinstance(data, cst.ListComp) and not isinstance(data.elt, cst.Call)
        over = over.inner_for_in
    return False


def operands_of_host(model: FileModel) -> Iterator[Problem]:
    """``x + self.positions[:, :n]`` of what ``__init__`` made on the CPU, and no buffer is.

    Also of what a step itself computes there, the first time in each function.
    """
    told: set[Function | None] = set()
    for node in model.nodes(cst.BinaryOperation):
        if not isinstance(node.operator, _ARITHMETIC):
            continue
        for one, other in ((node.left, node.right), (node.right, node.left)):
            kept = _kept_on_host(model, other) if model.value(one).is_device_tensor else None
            made = kept
            if kept is None and model.value(one).is_device_tensor:
                made = _computed_there(model, other)
            loop = costly_loop(model, node) if made is not None else None
            if made is None or loop is None or (kept is None and model.function_of(node) in told):
                continue
            told |= set() if kept is not None else {model.function_of(node)}
            when, again, advice = ("", "", "compute it on the device (device=x.device)")
            if kept is not None:
                when, again = " before", " again"
                advice = "make it a buffer of the module (register_buffer), or move it once"
            yield model.problem(
                node,
                f"an operand was made on the CPU{when}, and is uploaded {often(loop)}{again}",
                suggestion=advice,
                related=[loop_place(model, loop), model.place(made, "made here")],
            )
            break


def _kept_on_host(model: FileModel, node: cst.BaseExpression) -> cst.Call | None:
    """The call that made what an attribute of an object keeps on the host, if it does."""
    value = model.value(node)
    held = node.value if isinstance(node, cst.Subscript) else node
    made = value.origin if value.kind is Kind.CPU_TENSOR else None
    if not isinstance(held, cst.Attribute) or not isinstance(made, cst.Call):
        return None
    if value.type_name == PARAMETER or not model.is_here(made):
        return None
    call = model.call(made)
    fills = (call.name or "").startswith("torch.") and (
        model.library.returns(call.name or "") is Returns.NEW_TENSOR
    )
    single = call.last in {"tensor", "as_tensor"} and not isinstance(call.argument(0), cst.List)
    if not fills or single or "device" in call.keywords or model.hot_loop(made) is not None:
        return None
    return made


def _computed_there(model: FileModel, node: cst.BaseExpression) -> cst.Call | None:
    """``other = torch.scatter(torch.ones_like(mask), ...)`` of a mask that went to the CPU."""
    value = model.value(node)
    if isinstance(node, cst.Name) and value.kind is Kind.UNKNOWN:
        return _of_constants(model, node)
    made = value.origin if isinstance(node, cst.Name) and value.kind is Kind.CPU_TENSOR else None
    if not isinstance(made, cst.Call) or not model.is_here(made) or not value.certain:
        return None
    call, function = model.call(made), model.function_of(node)
    computes = (call.name or "").startswith("torch.") and call.last not in _MAY_BE_NUMBERS
    if not computes or call.function is not function or model.hot_loop(made) is None:
        return None
    new = model.library.returns(call.name or "") is Returns.NEW_TENSOR  # XLA604 tells these itself
    return None if new or is_of_data(model, call) else made


def _of_constants(model: FileModel, node: cst.Name) -> cst.Call | None:
    """``rates = torch.exp(torch.arange(half) * -step)``: no number of it is known, but where it is.

    The factory at its bottom.
    """
    last = given_last(model, node)
    if not isinstance(last, cst.Call | cst.BinaryOperation):
        return None
    if isinstance(last, cst.Call) and model.call(last).last in _MAY_BE_NUMBERS:
        return None
    factory = computed_of_constants(model, last)
    return factory if factory is not None and model.hot_loop(factory) is not None else None
