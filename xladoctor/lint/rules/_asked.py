"""Device tensors whose truth Python asks for: ``if loss < best:``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.conditions import compared
from xladoctor.lint.model.dotted import is_name, text_of
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.rules._exact import assigned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel

_WORDS = {cst.If: "if", cst.While: "while", cst.IfExp: "if", cst.Assert: "assert", cst.CompIf: "if"}
#: What is given a list of tensors.
_OF_LISTS = ("torch.stack", "torch.cat", "torch.concat", "builtins.len", "builtins.sum")
_ASKING = (*_WORDS, cst.MatchCase, cst.BooleanOperation, cst.UnaryOperation)


def asked_tensors(model: FileModel) -> Iterator[tuple[str, cst.BaseExpression]]:
    """The word that asks, and the tensor: one for each condition."""
    seen: set[cst.CSTNode] = set()
    for node in model.nodes(*_ASKING):
        word, asked = _asks(node)
        for expression in asked:
            if expression in seen:
                continue
            seen.update(walk(expression, into_functions=False))
            tensor = next((leaf for leaf in _leaves(expression) if _is_tensor(model, leaf)), None)
            if tensor is not None:
                yield word, tensor


def asks_tensor(model: FileModel, test: cst.BaseExpression) -> bool:
    """Whether a condition asks a tensor on the device."""
    return any(_is_tensor(model, leaf) for leaf in _leaves(test))


def _asks(node: cst.CSTNode) -> tuple[str, list[cst.BaseExpression]]:
    """The expressions whose truth a node asks for, and by which word."""
    if isinstance(node, cst.If | cst.While | cst.IfExp | cst.Assert | cst.CompIf):
        return _WORDS[type(node)], [node.test]
    if isinstance(node, cst.MatchCase) and node.guard is not None:
        return "if", [node.guard]  # ``case "cruise" if norm > limit:``
    if isinstance(node, cst.BooleanOperation):
        if _is_empty(node.right):
            return "", []  # ``outputs.hidden_states or ()``: a tuple or None
        # Outside of a condition only the left side is asked; the right one is merely returned.
        return ("and" if isinstance(node.operator, cst.And) else "or"), [node.left]
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        return "not", [node.expression]
    return "", []


def _is_empty(node: cst.BaseExpression) -> bool:
    """``()``, ``[]`` and ``{}``."""
    return isinstance(node, cst.Tuple | cst.List | cst.Dict) and not node.elements


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
    if takes_out(model, leaf):  # ``settings.get("states") or -1``
        return False
    if isinstance(leaf, cst.Name) and (_is_taken_out(model, leaf) or _is_mapping(model, leaf)):
        return False
    if isinstance(leaf, cst.Attribute) and any(is_name(x, "None") for x in model.kept_in(leaf)):
        return False  # ``if not self.first: self.first = batch``: is there one yet?
    if isinstance(leaf, cst.Comparison):
        operators = [target.operator for target in leaf.comparisons]
        if any(isinstance(op, cst.Is | cst.IsNot | cst.In | cst.NotIn) for op in operators):
            return False
        sides = compared(leaf)
        if not any(model.value(side).is_device_tensor for side in sides):
            return False
        # ``t == None`` is Python's own answer
        return not any(isinstance(model.literal(side), str | None) for side in sides)
    if not model.value(leaf).is_device_tensor:
        return False
    return not (isinstance(leaf, cst.Subscript) and _is_listed(model, leaf))


def _is_taken_out(model: FileModel, name: cst.Name) -> bool:
    """``states = outputs.get("states")`` and ``if states:``: is there anything, in it or at all?

    Python refuses to ask this of a tensor with more than one element, so what a model gives back
    under a key is a list or None where it is asked.
    """
    values = assigned(model, name)
    return bool(values) and all(takes_out(model, value) for value in values)


def takes_out(model: FileModel, node: cst.BaseExpression) -> bool:
    """``settings.get(name)``, also for each of several names."""
    if isinstance(node, cst.GeneratorExp | cst.ListComp):
        return any(takes_out(model, leaf) for leaf in _leaves(node.elt))
    return isinstance(node, cst.Call) and model.call(node).method in {"get", "pop"}


def _is_mapping(model: FileModel, name: cst.Name) -> bool:
    """``loss, metrics = net(x)`` and ``if metrics:``, of whose keys the same function asks.

    Also ``if not batch: continue`` before ``batch["images"]``.
    """
    home = model.function_of(name)
    keyed = any(
        isinstance(node, cst.Subscript)
        and is_name(node.value, name.value)
        and text_of(index_of(node)) is not None
        and model.function_of(node) is home
        for node in model.nodes(cst.Subscript)
    )
    if keyed or model.value(name).certain:
        return keyed
    return any(
        is_name(call.receiver, name.value) and call.function is home
        for call in model.methods("keys", "items", "values")
    )


def _is_listed(model: FileModel, node: cst.Subscript) -> bool:
    """``if outputs["losses"]:`` of what the function stacks, counts or goes over: a list."""
    if model.value(node).certain:
        return False
    text, home = model.tree.text(node).strip(), model.function_of(node)
    given = [call.positional[0] for call in model.calls(*_OF_LISTS) if call.positional]
    given += [one.iter for one in model.nodes(cst.For, cst.CompFor)]  # type: ignore[attr-defined]
    return any(
        model.tree.text(one).strip() == text and model.function_of(one) is home for one in given
    )
