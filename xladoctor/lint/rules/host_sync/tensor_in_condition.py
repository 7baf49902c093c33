"""XLA104: Python decides on the value of a device tensor in the step loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._reads import costly_loop, read_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_ADVICE = (
    "choose on the device: torch.where(condition, a, b); "
    "to check for NaN, look every 100 steps in a step closure"
)
_WORDS = {cst.If: "if", cst.While: "while", cst.IfExp: "if", cst.Assert: "assert", cst.CompIf: "if"}
_ASKING = (*_WORDS, cst.BooleanOperation, cst.UnaryOperation)
_BUILTINS = ("any", "all", "max", "min", "sorted")


@rule("XLA104")
def tensor_in_condition(model: FileModel) -> Iterator[Problem]:
    """Find device tensors whose truth Python asks for in hot loops."""
    seen: set[cst.CSTNode] = set()
    for node in model.nodes(*_ASKING):
        word, asked = _asks(node)
        for expression in asked:
            if expression in seen:
                continue
            seen.update(walk(expression, into_functions=False))
            tensor = next((leaf for leaf in _leaves(expression) if _is_tensor(model, leaf)), None)
            loop = costly_loop(model, tensor) if tensor is not None else None
            if tensor is not None and loop is not None:
                yield read_problem(model, tensor, tensor, loop, f"`{word}` reads", _ADVICE)
    yield from _builtins(model)


def _asks(node: cst.CSTNode) -> tuple[str, list[cst.BaseExpression]]:
    """The expressions whose truth a node asks for, and by which word."""
    if isinstance(node, cst.If | cst.While | cst.IfExp | cst.Assert | cst.CompIf):
        return _WORDS[type(node)], [node.test]
    if isinstance(node, cst.BooleanOperation):
        # Outside of a condition only the left side is asked; the right one is merely returned.
        return ("and" if isinstance(node.operator, cst.And) else "or"), [node.left]
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        return "not", [node.expression]
    return "", []


def _leaves(expression: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The parts of a condition that are asked one by one."""
    if isinstance(expression, cst.BooleanOperation):
        yield from _leaves(expression.left)
        yield from _leaves(expression.right)
    elif isinstance(expression, cst.UnaryOperation) and isinstance(expression.operator, cst.Not):
        yield from _leaves(expression.expression)
    else:
        yield expression


def _is_tensor(model: FileModel, leaf: cst.BaseExpression) -> bool:
    if isinstance(leaf, cst.Name) and model.value(leaf).roads:
        # ``images=None`` and ``if images:``: of a tensor nobody asks this, of a list they do.
        bindings = model.bindings(leaf.value, leaf)
        if bindings and all(item.kind == "param" for item in bindings):
            return False
    if isinstance(leaf, cst.Name) and _is_taken_out(model, leaf):
        return False
    if isinstance(leaf, cst.Comparison):
        operators = [target.operator for target in leaf.comparisons]
        if any(isinstance(op, cst.Is | cst.IsNot | cst.In | cst.NotIn) for op in operators):
            return False
        sides = [leaf.left, *(target.comparator for target in leaf.comparisons)]
        if not any(model.value(side).is_device_tensor for side in sides):
            return False
        # ``t == None`` is Python's own answer
        return not any(isinstance(model.literal(side), str | None) for side in sides)
    return model.value(leaf).is_device_tensor


def _is_taken_out(model: FileModel, name: cst.Name) -> bool:
    """``states = outputs.get("states")`` and ``if states:``: is there anything, in it or at all?

    Python refuses to ask this of a tensor with more than one element, so what a model gives back
    under a key is a list or None where it is asked.
    """
    values = assigned(model, name)
    return bool(values) and all(
        isinstance(value, cst.Call) and model.call(value).method in {"get", "pop"}
        for value in values
    )


def _builtins(model: FileModel) -> Iterator[Problem]:
    """``max(a, b)`` compares with ``if`` inside."""
    for call in model.calls(*(f"builtins.{name}" for name in _BUILTINS)):
        tensor = next(
            (arg for arg in call.positional if model.value(arg).holds_device_tensor), None
        )
        loop = costly_loop(model, call.node) if tensor is not None else None
        if tensor is None or loop is None:
            continue
        assert call.name is not None
        spelled = call.name.removeprefix("builtins.")
        advice = _ADVICE
        if spelled in {"max", "min"}:
            advice = f"use torch.{spelled}imum(a, b), which stays on the device"
        yield read_problem(model, call.node, tensor, loop, f"`{spelled}()` reads", advice)
