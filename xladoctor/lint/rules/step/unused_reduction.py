"""XLA308: a reduction gives its result back, and nobody takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Attributes of parameters and layers that are tensors.
_TENSORS = frozenset({"bias", "data", "grad", "running_mean", "running_var", "weight"})
_FACTORIES = frozenset(
    f"torch.{name}{like}"
    for name in ("zeros", "ones", "empty", "full", "rand", "randn")
    for like in ("", "_like")
) | {"torch.tensor", "torch.as_tensor", "torch.cat", "torch.stack", "torch.clone"}
_REDUCE = "torch_xla.core.xla_model.all_reduce"
#: What leaves its argument alone whatever it is, with the place and the name of the argument.
_GIVES_BACK = {
    "torch_xla.core.xla_model.mesh_reduce": (1, "data"),
    "torch_xla.core.xla_model.all_gather": (0, "value"),
}
#: Libraries whose functions only compute: a function of the program may keep what it is given.
_COMPUTES = ("builtins.", "numpy.", "torch.", "statistics.")


@rule("XLA308")
def unused_reduction(model: FileModel) -> Iterator[Problem]:
    """Find reductions of a single tensor whose result is dropped."""
    for call in model.calls(_REDUCE):
        tensor = call.argument(1, "inputs")
        if not isinstance(model.parent(call.node), cst.Expr) or tensor is None:
            continue
        if not _is_tensor(model, tensor):
            continue  # a list is reduced in place
        fix = None
        if isinstance(tensor, cst.Name):
            written = f"{tensor.value} = {model.tree.text(call.node).strip()}"
            fix = model.fix("Take the result", model.replace(call.node, written), safe=True)
        yield model.problem(
            call.node,
            f"xm.all_reduce does not change {snippet(model, tensor)}: it returns the result, which "
            "is dropped here (only a list is reduced in place)",
            suggestion="tensor = xm.all_reduce(op, tensor)",
            fix=fix,
        )
    yield from _gathered_for_nobody(model)
    yield from _lost_to_a_loop(model)


def _gathered_for_nobody(model: FileModel) -> Iterator[Problem]:
    """``xm.mesh_reduce("loss", loss, np.mean)`` as a statement: the loss stays that of this core.

    With a constant in place of the value it is there to wait for the other cores.
    """
    for call in model.calls(*_GIVES_BACK):
        place, name = _GIVES_BACK[call.name or ""]
        given = call.argument(place, name)
        if not isinstance(model.parent(call.node), cst.Expr) or "output" in call.keywords:
            continue
        reducer = call.argument(2, "reduce_fn")
        computes = reducer is None or (model.name(reducer) or "").startswith(_COMPUTES)
        if given is None or not computes or not isinstance(given, cst.Name | cst.Attribute):
            continue
        function = call.last
        yield model.problem(
            call.node,
            f"xm.{function} does not change {snippet(model, given)}: it returns the result, which "
            "is dropped here, and each core goes on with its own value",
            suggestion=f"value = {model.tree.text(call.node).strip()}",
        )


def _lost_to_a_loop(model: FileModel) -> Iterator[Problem]:
    """``for buffer in buffers: buffer = xm.all_reduce(op, buffer)``: the name alone changes."""
    for node in model.nodes(cst.Assign):
        target = node.targets[0].target
        if len(node.targets) != 1 or not isinstance(target, cst.Name):
            continue
        call = node.value if isinstance(node.value, cst.Call) else None
        loop = model.loop(node)
        if call is None or loop is None or not isinstance(loop.node, cst.For):
            continue
        given = any(_is_of(argument.value, target.value) for argument in call.args)
        own = any(is_name(part, target.value) for part in walk(loop.node.target))
        if not given or not own or not _reduces(model, call) or _read_after(loop.node, node):
            continue
        yield model.problem(
            call,
            f"only the name {target.value} gets the reduced tensor: the tensors that the loop "
            "iterates over stay unreduced",
            suggestion=f"{target.value}.copy_({model.tree.text(call).strip()}), or "
            "xm.all_reduce(op, [tensor, ...]), which reduces in place",
            related=[model.place(loop.node, "the loop")],
        )


def _is_of(node: cst.CSTNode, name: str) -> bool:
    """``buffer``, ``buffer.data`` and the like."""
    tensor = node.value if isinstance(node, cst.Attribute) and node.attr.value in _TENSORS else node
    return is_name(tensor, name)


def _reduces(model: FileModel, node: cst.Call) -> bool:
    """``xm.all_reduce`` of a tensor, here or in the function of the program that is called."""
    call = model.call(node)
    if call.name == _REDUCE:
        return True
    function = call.target
    if not isinstance(function, Function):
        return False
    inside = model.reached(function.node)
    in_place = any((other.method or "").endswith("_") for other in inside)
    return any(other.name == _REDUCE for other in inside) and not in_place


def _read_after(loop: cst.For, line: cst.Assign) -> bool:
    """Whether the loop's body uses the name of an assignment again, behind it."""
    target = line.targets[0].target
    assert isinstance(target, cst.Name)
    parts = list(walk(loop.body))
    behind = parts[parts.index(line) + sum(1 for _ in walk(line)) :]
    return any(is_name(part, target.value) for part in behind)


def _is_tensor(model: FileModel, node: cst.BaseExpression) -> bool:
    """One tensor: by its value, as ``parameter.grad``, or as a parameter declared to be one."""
    if isinstance(node, cst.Attribute) and node.attr.value in _TENSORS:
        return True
    value = model.value(node)
    if value.is_device_tensor or value.kind is Kind.CPU_TENSOR or _makes_one(model, value.origin):
        return True
    if not isinstance(node, cst.Name):
        return False
    bound = [binding.node for binding in model.bindings(node.value, node)]
    return len(bound) == 1 and (
        _makes_one(model, bound[0])
        or (
            isinstance(bound[0], cst.Param)
            and bound[0].annotation is not None
            and model.name(bound[0].annotation.annotation) == "torch.Tensor"
        )
    )


def _makes_one(model: FileModel, node: cst.CSTNode | None) -> bool:
    """``torch.zeros_like(x)``: whatever it is made of, the result is one tensor."""
    return isinstance(node, cst.Call) and model.call(node).name in _FACTORIES
