"""Batches that a training loop cuts by itself: ``for i in range(0, len(x), 64):``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Effect
from xladoctor.lint.model import LoopKind, OnXla, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules._exact import assigned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem


def sliced_batches(model: FileModel) -> Iterator[Problem]:
    """Training loops whose last slice holds what is left of the data."""
    for loop in model.loops:
        if loop.kind is not LoopKind.STEP or loop.implicit or not isinstance(loop.node, cst.For):
            continue
        made = loop.node.iter
        call = model.call(made) if isinstance(made, cst.Call) else None
        if call is None or not _counts_to_the_end(model, call):
            continue
        cut = _cut(model, loop, call.positional[2])
        if cut is None or _leaves_short_ones(model, loop) or model.on_xla(made) is OnXla.NO:
            continue
        if _is_one_graph(model, loop):
            continue
        yield model.problem(
            made,
            "the last slice holds the rest of the data: a new shape, so the whole step is compiled "
            "a second time",
            suggestion="leave the rest out: range(0, len(x) - size + 1, size)",
            related=[model.place(cut, "the batch is cut here")],
        )


def _is_one_graph(model: FileModel, loop: Loop) -> bool:
    """Whether nothing in a loop ends the graph: then all slices are one, the last among them."""
    inside = {call.node for call in model.reached(loop.node)} | {*walk(loop.node)}
    return not model.effects.ends(loop.node) and not any(
        event.node in inside for event in model.effects.of(Effect.READ)
    )


def _counts_to_the_end(model: FileModel, call: CallSite) -> bool:
    """``range(0, len(x), size)``, where no two of these numbers say that nothing is left over."""
    if call.name != "builtins.range" or len(call.positional) != 3 or call.has_star:
        return False
    _, stop, size = call.positional
    return _is_length(model, stop) and model.literal(size) != 1


def _is_length(model: FileModel, node: cst.BaseExpression) -> bool:
    """``len(x)``, ``x.shape[0]``, ``x.size(0)``, or the one name of such a number."""
    if isinstance(node, cst.Name):
        return any(_is_length(model, one) for one in _once(model, node))
    if isinstance(node, cst.Call):
        call = model.call(node)
        if call.name == "builtins.len":
            return True
        return call.method == "size" and len(call.positional) == 1
    if isinstance(node, cst.Subscript):
        held = node.value
        return isinstance(held, cst.Attribute) and held.attr.value == "shape"
    return False


def _cut(model: FileModel, loop: Loop, size: cst.BaseExpression) -> cst.Subscript | None:
    """``x[i : i + size]`` in the loop, or the same with ``end = i + size``."""
    assert isinstance(loop.node, cst.For)
    counter = loop.node.target
    if not isinstance(counter, cst.Name):
        return None
    for node in walk(loop.node.body, into_functions=False):
        part = node.slice[0].slice if isinstance(node, cst.Subscript) else None
        if not isinstance(part, cst.Slice) or part.step is not None or part.upper is None:
            continue
        if is_name(part.lower, counter.value) and _ends(model, part.upper, counter.value, size):
            assert isinstance(node, cst.Subscript)
            return node
    return None


def _ends(
    model: FileModel, end: cst.BaseExpression, counter: str, size: cst.BaseExpression
) -> bool:
    if isinstance(end, cst.Name):
        return any(_ends(model, one, counter, size) for one in _once(model, end))
    if isinstance(end, cst.Call) and model.name(end.func) == "builtins.min":
        return any(_ends(model, one.value, counter, size) for one in end.args)
    if not isinstance(end, cst.BinaryOperation) or not isinstance(end.operator, cst.Add):
        return False
    both = (end.left, end.right), (end.right, end.left)
    wanted = model.tree.text(size).strip()
    return any(
        is_name(one, counter) and model.tree.text(other).strip() == wanted for one, other in both
    )


def _once(model: FileModel, name: cst.Name) -> list[cst.BaseExpression]:
    """The only thing that a name is assigned, unless that is a name again."""
    made = assigned(model, name)
    return [] if len(made) != 1 or isinstance(made[0], cst.Name) else made


def _leaves_short_ones(model: FileModel, loop: Loop) -> bool:
    """Whether a turn may be left early, or something fills the batch up."""
    for node in walk(loop.node, into_functions=False):
        if isinstance(node, cst.Continue | cst.Break):
            return True
        if isinstance(node, cst.Call) and "pad" in model.call(node).last.lower():
            return True
    return False
