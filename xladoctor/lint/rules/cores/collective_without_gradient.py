"""XLA433: a collective between the model and the loss, through which no gradient comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_MODEL = "torch_xla.core.xla_model"
#: Collective to (position, keyword) of the tensor that it takes.
_COLLECTIVES = {
    f"{_MODEL}.all_reduce": (1, "inputs"),
    f"{_MODEL}.all_gather": (0, "value"),
    f"{_MODEL}.reduce_scatter": (1, "input"),
    f"{_MODEL}.all_to_all": (0, "value"),
}
#: Those that ``torch_xla.core.functions`` has with a gradient and the same first arguments.
_DIFFERENTIABLE = "torch_xla.core.functions"
_SAME_ARGUMENTS = {
    f"{_MODEL}.all_reduce": ("all_reduce", {"scale", "groups"}),
    f"{_MODEL}.all_gather": ("all_gather", {"dim"}),
}
#: Functions between the one with the collective and the one with the backward pass.
_DEPTH = 2
_CUT_ON_PURPOSE = frozenset({"detach", "item", "cpu", "numpy", "tolist"})


@rule("XLA433")
def collective_without_gradient(model: FileModel) -> Iterator[Problem]:
    """Find collectives whose result the loss is made of."""
    if model.spmd or not model.multi_core:
        return
    for call in model.calls(*_COLLECTIVES):
        assert call.name is not None
        tensor = call.argument(*_COLLECTIVES[call.name])
        if (
            tensor is None
            or call.function is None
            or isinstance(tensor, (cst.List, cst.Tuple))
            or _cut(tensor)
            or not model.value(tensor).is_device_tensor
        ):
            continue
        backward = _backward(model, call)
        if backward is None:
            continue
        short = call.name.rpartition(".")[2]
        yield model.problem(
            call.node,
            f"xm.{short} has no gradient on several cores: backward() stops here, and what is "
            "before it is not trained (on one core it is)",
            suggestion=f"torch_xla.core.functions.{short}, which has one",
            related=[model.place(backward, "the loss is made of it")],
            fix=_fix(model, call),
        )


def _cut(node: cst.CSTNode) -> bool:
    return any(
        isinstance(one, cst.Attribute) and one.attr.value in {*_CUT_ON_PURPOSE, "data", "grad"}
        for one in walk(node)
    )


def _backward(model: FileModel, call: CallSite, depth: int = _DEPTH) -> cst.Call | None:
    """The ``backward()`` that a call's result goes into, there or where the function is called."""
    carried = set(_assigned(model, call.node))
    inside = _backward_of(model, call, carried) if carried else None
    if inside is not None or call.function is None or depth == 0:
        return inside
    given = [
        line.value
        for line in walk(call.function.node, into_functions=False)
        if isinstance(line, cst.Return) and line.value is not None
    ]
    # All that the function gives back is made of it: a pair may hold it for the log.
    whole = [value for value in given if not isinstance(value, cst.Tuple | cst.Dict)]
    if not given or len(whole) < len(given) or not all(_takes(one, carried) for one in given):
        return None
    outside = (_backward(model, one, depth - 1) for one in model.callers(call.function))
    return next((node for node in outside if node is not None), None)


def _backward_of(model: FileModel, call: CallSite, carried: set[str]) -> cst.Call | None:
    """The ``backward()`` of the same function; ``carried`` gets the names on the way."""
    assert call.function is not None
    for node in walk(call.function.node, into_functions=False):
        if node is call.node or not in_order(model, call.node, node):
            continue
        if isinstance(node, cst.Assign | cst.AugAssign) and _takes(node.value, carried):
            targets = node.targets if isinstance(node, cst.Assign) else [node]
            names = (target.target for target in targets)
            carried.update(name.value for name in names if isinstance(name, cst.Name))
        elif isinstance(node, cst.Call) and model.call(node).method == "backward":
            receiver = model.call(node).receiver
            if receiver is not None and _takes(receiver, carried):
                return node
    return None


def _takes(node: cst.CSTNode, names: set[str]) -> bool:
    return not _cut(node) and any(
        isinstance(one, cst.Name) and one.value in names for one in walk(node)
    )


def _assigned(model: FileModel, node: cst.CSTNode) -> Iterator[str]:
    """The plain names that the statement around an expression gives its value to."""
    parent = model.parent(node)
    while parent is not None and isinstance(parent, (cst.BaseExpression, cst.Arg)):
        if isinstance(parent, cst.Attribute) and parent.attr.value in _CUT_ON_PURPOSE:
            return
        parent = model.parent(parent)
    if isinstance(parent, cst.Assign):
        for target in parent.targets:
            if isinstance(target.target, cst.Name):
                yield target.target.value


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    name, known = _SAME_ARGUMENTS.get(call.name or "", ("", set[str]()))
    positions = 2 if name == "all_reduce" else 1
    if not name or call.has_star or len(call.positional) > positions or set(call.keywords) - known:
        return None
    spelled = spell(model, call.node, f"{_DIFFERENTIABLE}.{name}", beside=call.node.func)
    if spelled is None:
        return None
    written, edits = spelled
    return model.fix(
        "Use the collective that has a gradient",
        model.replace(call.node.func, written),
        *edits,
        safe=False,
    )
