"""Statements that add a tensor to what a program keeps: sums, lists, dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.parts import each_in
from xladoctor.lint.model.taken import names_set, targets
from xladoctor.lint.rules._history import text_of
from xladoctor.lint.rules._sources import made_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Methods that give a tensor of the same history.
_SAME = frozenset({"mean", "sum", "clone", "float", "double", "view", "reshape", "squeeze"})
#: Methods by which something is taken out of a list, or all of it.
_TAKES = frozenset({"pop", "popleft", "clear", "reset"})


class Kept(NamedTuple):
    """A tensor that a statement adds to what is kept.

    Attributes:
        tensor: As it is added.
        total: How what keeps it is written: ``total``, ``self.total``, ``history["loss"]``.
    """

    tensor: cst.BaseExpression
    total: str

    @property
    def root(self) -> str:
        """``history`` of ``history["loss"]``, ``self.total`` of ``self.total[0]``."""
        return self.total.partition("[")[0]


def kept(model: FileModel, node: cst.CSTNode, tensors: Collection[str]) -> Kept | None:
    """What a statement adds to a sum or a list: ``total += loss``, ``losses.append(loss)``.

    Args:
        model: The file.
        node: The statement.
        tensors: How tensors are written that count.
    """
    if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
        return _kept(model, _bare(model, node.value, tensors), node.target)
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        target = node.targets[0].target
        written = text_of(model, target)
        for part in walk(node.value) if written not in tensors else ():
            if not isinstance(part, cst.BinaryOperation) or not isinstance(part.operator, cst.Add):
                continue
            if _is_old(model, part.left, target):
                return _kept(model, _bare(model, part.right, tensors), target)
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
        call = model.call(node.value)
        if call.target is not None:
            return None  # a class of the program's own, which may keep numbers alone
        if call.method in {"append", "extend"} and call.receiver is not None and call.positional:
            items = _items(call.positional[0], whole=call.method == "append")
            item = next((x for x in items if _bare(model, x, tensors) is x), None)
            window = made_in(model, call.receiver, ("collections.deque",)) is not None
            return None if window else _kept(model, item, call.receiver)
    return None


def _is_old(
    model: FileModel, node: cst.BaseExpression, target: cst.BaseAssignTargetExpression
) -> bool:
    """What is bound anew: ``total``, and ``totals.get(key, 0)`` of ``totals[key]``."""
    func = node.func if isinstance(node, cst.Call) else None
    if isinstance(func, cst.Attribute) and isinstance(target, cst.Subscript):
        held = text_of(model, func.value) == text_of(model, target.value)
        return held and func.attr.value == "get"
    return text_of(model, node) == text_of(model, target)


def _kept(model: FileModel, tensor: cst.BaseExpression | None, target: cst.CSTNode) -> Kept | None:
    if tensor is None or not isinstance(target, cst.Name | cst.Attribute | cst.Subscript):
        return None
    return Kept(tensor, text_of(model, target))


def _bare(
    model: FileModel, node: cst.BaseExpression, tensors: Collection[str]
) -> cst.BaseExpression | None:
    """The tensor in an expression of numbers, if nothing cuts its history."""
    if isinstance(node, cst.BinaryOperation):
        left = _bare(model, node.left, tensors)
        return left if left is not None else _bare(model, node.right, tensors)
    func = node.func if isinstance(node, cst.Call) else None
    if isinstance(func, cst.Attribute) and func.attr.value in _SAME:
        return _bare(model, func.value, tensors)
    return node if text_of(model, node) in tensors else None


def _items(item: cst.BaseExpression, *, whole: bool) -> Iterator[cst.BaseExpression]:
    """What a list is given: ``loss``, ``(d_loss, g_loss)``, ``{"loss": loss}``."""
    if isinstance(item, cst.Tuple | cst.List):
        yield from (one.value for one in item.elements)
    elif isinstance(item, cst.Dict):
        yield from (one.value for one in item.elements if whole)
    elif whole:
        yield item


def begins_anew(
    model: FileModel, nodes: Iterable[cst.CSTNode], line: cst.CSTNode, found: Kept
) -> bool:
    """Whether a sum or a list starts anew in each turn of a loop, or loses items there.

    Args:
        model: The file.
        nodes: All of the loop's body.
        line: The statement that adds.
        found: What it adds.
    """
    listed = isinstance(line, cst.Expr)
    return any(
        _takes_out(model, node, found)
        if isinstance(node, cst.Call)
        else node is not line
        and _sets(model, node, found)
        and (listed or not model.throttled(node))
        for node in nodes
    )


def _takes_out(model: FileModel, node: cst.Call, found: Kept) -> bool:
    """``losses.clear()``, ``self.window.pop(0)``."""
    func = node.func
    return (
        isinstance(func, cst.Attribute)
        and func.attr.value in _TAKES
        and text_of(model, func.value) in {found.root, found.total}
    )


def _sets(model: FileModel, node: cst.CSTNode, found: Kept) -> bool:
    """Whether a statement gives the total, or what holds it, another value than a sum with it."""
    if isinstance(node, cst.Del):
        return text_of(model, node.target).startswith(found.root)
    if not isinstance(node, cst.Assign | cst.AnnAssign):
        return False
    whole = targets(node)
    written = {text_of(model, x) for one in whole for x in (one, *each_in(one))}
    if written.isdisjoint({found.root, found.total, found.root.partition(".")[0]}):
        return False
    return node.value is None or all(
        text_of(model, part) != found.total for part in model.within(node.value, cst.Name)
    )


def made_anew(nodes: Iterable[cst.CSTNode], call: CallSite) -> bool:
    """Whether an object is made, or emptied, in each turn of the loop that calls its method."""
    holder = call.receiver
    text = dotted_text(holder) if holder is not None else None
    root = (text or "").partition(".")[0]
    emptied = {f"{text}.reset", f"{text}.clear"}
    return text is None or any(
        root in names_set(node)
        or (isinstance(node, cst.Call) and dotted_text(node.func) in emptied)
        for node in nodes
    )
