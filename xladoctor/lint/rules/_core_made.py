"""Tensors that some cores make by other operations than the rest, on the way to a collective."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.model.parts import each_in
from xladoctor.lint.rules._exact import in_order, same_name
from xladoctor.lint.rules._pending import may_end, waits_in_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

_Target: TypeAlias = "cst.Name | cst.Attribute"
#: What fills a tensor by an operation of the graph, if it is made on the device.
_FILLS = frozenset(
    f"torch.{name}"
    for name in ("zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "eye")
)
_LIKE = frozenset(
    f"torch.{name}_like" for name in ("zeros", "ones", "full", "empty", "rand", "randn")
)
_NEW = frozenset({"new_zeros", "new_ones", "new_full", "new_empty"})
_IN_PLACE = frozenset({"zero_", "fill_", "mul_", "normal_", "uniform_", "random_"})
#: What a tensor may pass that leaves it where it is.
_KEEP = frozenset({"float", "half", "long", "double", "bfloat16", "view", "reshape", "unsqueeze"})
_OF_CORES = frozenset({Kind.CORE_NUMBER, Kind.IS_MASTER, Kind.NOT_MASTER})


@dataclasses.dataclass(frozen=True, slots=True)
class CoreMade:
    """A tensor that the core's number decides about.

    Attributes:
        node: What makes it, on some cores.
        test: The condition.
        call: The collective that it goes into.
    """

    node: cst.CSTNode
    test: cst.BaseExpression
    call: CallSite


def core_made(model: FileModel) -> Iterator[CoreMade]:
    """``if rank != 0: x = torch.zeros_like(x)`` and ``xm.all_reduce("sum", x)`` behind it.

    A fill is a constant of the graph, on the cores that fill alone: ``collective_broadcast`` of
    torch_xla 2.9 multiplies by what it sends to the device, "the exact same graph in each replica
    to prevent hanging". What all bring from the host is data, whatever it is.
    """
    files = (model, *model.linked)
    if not any(waits_in_graph(model, call) for part in files for call in part.calls()):
        return
    told: set[cst.CSTNode] = set()
    for node, target, test, inside in _made(model):
        call = _collective_behind(model, node, target, inside) if inside not in told else None
        if call is not None:
            told.add(inside)
            yield CoreMade(node, test, call)


def _made(
    model: FileModel,
) -> Iterator[tuple[cst.CSTNode, _Target, cst.BaseExpression, cst.CSTNode]]:
    """What makes a tensor on some cores, what holds it, the condition, and the whole of that."""
    for node, target, value in _set(model):
        if isinstance(value, cst.IfExp):
            sides = (value.body, value.orelse)
            if _asks(model, value.test) and any(_traced(model, x, target) for x in sides):
                yield value, target, value.test, value
        elif value is None or _traced(model, value, target):
            for guard in model.guards(node):
                if isinstance(guard.node, cst.If) and _asks(model, guard.test):
                    yield node, target, guard.test, guard.node
                    break


def _set(
    model: FileModel,
) -> Iterator[tuple[cst.CSTNode, _Target, cst.BaseExpression | None]]:
    """Where something is set: the node, the target, and its value; None if it is changed there."""
    for line in model.nodes(cst.Assign):
        target = line.targets[0].target
        if isinstance(target, cst.Name | cst.Attribute):
            yield line, target, line.value
    for changed in model.nodes(cst.AugAssign):
        if isinstance(changed.target, cst.Name | cst.Attribute):
            yield changed, changed.target, None
    for call in model.methods(*_IN_PLACE):
        if isinstance(call.receiver, cst.Name | cst.Attribute):
            yield call.node, call.receiver, None


def _asks(model: FileModel, test: cst.BaseExpression) -> bool:
    """Whether a condition asks for the core's number."""
    parts = (x for x in walk(test) if isinstance(x, cst.Name | cst.Attribute | cst.Call))
    return any(model.value(part).kind in _OF_CORES for part in parts)


def _traced(model: FileModel, value: cst.BaseExpression, target: _Target) -> bool:
    """Whether an expression makes a tensor on the device, or of the one that the name held."""
    if isinstance(value, cst.BinaryOperation):
        return same_name(value.left, target) or same_name(value.right, target)
    if not isinstance(value, cst.Call):
        return False
    call = model.call(value)
    device = call.keywords.get("device")
    there = device is not None and model.value(device).kind is Kind.DEVICE
    if call.name in _FILLS:
        return there
    if call.name in _LIKE or (call.name is None and call.method in _NEW):
        like = call.argument(0, "input") if call.name in _LIKE else call.receiver
        if device is not None or like is None:
            return there
        return same_name(like, target) or model.value(like).is_device_tensor
    kept = call.receiver if call.method in _KEEP else None
    return kept is not None and _traced(model, kept, target)


def _collective_behind(
    model: FileModel, node: cst.CSTNode, target: _Target, condition: cst.CSTNode
) -> CallSite | None:
    """The collective that the tensor goes into on all cores, in the same graph."""
    function = model.function_of(node)
    for call in model.calls_in(model.tree.module if function is None else function.node):
        if call.function is not function or not in_order(model, node, call.node):
            continue
        if any(call.node is part for part in walk(condition)) or not _holds(model, call, target):
            continue
        if any(guard.node is condition for guard in model.guards(call.node)):
            return None  # some cores alone come here
        if _lost_between(model, node, target, call):
            return None
        inner = call if _joins(model, call, target) else _inside(model, call, target)
        if inner is not None:
            return inner
    return None


def _holds(model: FileModel, call: CallSite, target: _Target) -> bool:
    """Whether a call is given the tensor, alone or in a list."""
    return _is_given(call, target) or any(
        _lists(model, item.value, target) for item in call.node.args
    )


def _is_given(call: CallSite, target: _Target) -> bool:
    given = (item.value for item in call.node.args)
    return any(same_name(x, target) for one in given for x in (one, *each_in(one)))


def _lists(model: FileModel, node: cst.BaseExpression, target: _Target) -> bool:
    """Whether a list holds the tensor that a loop goes over, among the others.

    ``tensors.append(p.data)`` in the loop, ``[p.data for p in net.parameters()]`` behind it.
    """
    over = _gone_over(model, target)
    if isinstance(node, cst.Name):
        if node.value == over:
            return True
        filled = (
            call.positional[0]
            for call in model.methods("append")
            if call.positional and same_name(call.receiver, node)
            if call.function is model.function_of(node)
        )
        if any(same_name(one, target) for one in filled):
            return True
        made = model.assigned_once(node)
        node = node if made is None else made
    if isinstance(node, cst.Call) and model.name(node.func) == "builtins.list" and node.args:
        node = node.args[0].value
    elif isinstance(node, cst.ListComp):
        node = node.for_in.iter
    return model.tree.text(node).strip() == over


def _gone_over(model: FileModel, target: _Target) -> str | None:
    """``net.parameters()`` of ``for p in net.parameters(): p.data.zero_()``."""
    name: cst.BaseExpression = target
    while isinstance(name, cst.Attribute):
        name = name.value
    for loop in model.tree.ancestors(target):
        if isinstance(loop, cst.For) and same_name(loop.target, name):
            return model.tree.text(loop.iter).strip()
    return None


def _joins(model: FileModel, call: CallSite, target: _Target) -> bool:
    """Whether a call is a collective of tensors on the device."""
    of_xla = (call.name or "").startswith("torch_xla.")
    return waits_in_graph(model, call) and (of_xla or model.value(target).is_device_tensor)


def _inside(model: FileModel, call: CallSite, target: _Target) -> CallSite | None:
    """The collective that a function hands on what it is given to, before it ends any graph."""
    function = call.target
    if not isinstance(function, Function):
        return None
    names = (x for x in function.parameters if same_name(call.given_to(function, x), target))
    name = next(names, "")
    for inner in model.calls_in(function.node) if name else ():
        if may_end(model, inner):
            return None
        if _is_given(inner, cst.Name(name)) and (inner.name or "").startswith("torch_xla."):
            return inner if waits_in_graph(model, inner) else None
    return None


def _lost_between(model: FileModel, node: cst.CSTNode, target: _Target, call: CallSite) -> bool:
    """Whether the graph may have ended on the way to a call, or the name holds something else."""
    for between in model.calls_between(node, call.node):
        for one in model.reached(between.node):
            if may_end(model, one) or model.effects.is_read(one.node):
                return True
    mine = {(guard.node, not guard.when) for guard in model.guards(node)}
    for line in model.nodes(cst.Assign):
        again = any(same_name(item.target, target) for item in line.targets)
        if not again or line is node or not in_order(model, node, line, call.node):
            continue
        # The other side of a condition does not come after this one.
        apart = any((guard.node, guard.when) in mine for guard in model.guards(line))
        if not apart and not any(part is call.node for part in walk(line)):
            return True
    return False
