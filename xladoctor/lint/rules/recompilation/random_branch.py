"""XLA207: Python's dice decide which operations a step has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import drawn
from xladoctor.lint.rules._reads import costly_loop, loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_NOT_DICE = frozenset({"random.seed", "random.Random", "numpy.random.seed"})


@rule("XLA207")
def random_branch(model: FileModel) -> Iterator[Problem]:
    """Find ``if random.random() < p`` around device work in hot loops."""
    for node in model.nodes(cst.If):
        if not _throws(model, node.test):
            continue
        loop = costly_loop(model, node)
        if loop is None or not any(_computes(model, part) for part in walk(node.body)):
            continue
        yield model.problem(
            node.test,
            f"{snippet(model, node.test)} decides which operations the step has: each combination "
            "of such choices is a graph of its own, compiled when it first comes up",
            suggestion="choose with data: keep = torch.rand(n, device=device) < p, then "
            "torch.where(keep, a, b); or choose in the Dataset, on the host",
            related=[loop_place(model, loop)],
        )
    yield from _modes(model)


def _modes(model: FileModel) -> Iterator[Problem]:
    """``F.interpolate(x, mode=mode)`` with ``mode = random.choice(["area", "bilinear"])``."""
    for call in model.calls():
        if not (call.name or "").startswith("torch.") or not call.positional:
            continue
        given = model.value(call.positional[0])
        if not given.is_device_tensor and not given.made_of_device:
            continue
        for value in call.keywords.values():
            made = drawn(model, value)
            texts = made is not None and any(
                isinstance(part, cst.SimpleString)
                for argument in made.node.args
                for part in walk(argument)
            )
            loop = costly_loop(model, call.node) if texts else None
            if made is None or loop is None or model.hot_loop(made.node) is None:
                continue
            yield model.problem(
                value,
                f"{snippet(model, value)} is drawn, and decides which operations the step has: "
                "each combination of such choices is a graph of its own, compiled when it first "
                "comes up",
                suggestion="choose in the Dataset, on the host; or take one of them for all",
                related=[loop_place(model, loop), model.place(made.node, "drawn here")],
            )


def _throws(model: FileModel, test: cst.BaseExpression) -> bool:
    """``random.random() < p``, and ``"box" in kind`` of ``kind = random.choice(kinds)``."""
    for part in walk(test):
        made = drawn(model, part)
        if made is None or made.name in _NOT_DICE:
            continue
        if made.node is part or model.hot_loop(made.node) is not None:
            return True
    return False


def _computes(model: FileModel, node: cst.CSTNode) -> bool:
    """A call or an operator whose result is a device tensor."""
    if isinstance(node, cst.Call | cst.BinaryOperation):
        value = model.value(node)
        return (value.is_device_tensor or value.made_of_device) and not _moves(node)
    return False


def _moves(node: cst.CSTNode) -> bool:
    method = node.func.attr.value if _is_method(node) else ""  # type: ignore[attr-defined]
    return method in {"to", "detach", "item", "cpu"}


def _is_method(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
