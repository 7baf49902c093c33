"""Batches that leave samples out: ``torch.cat([s for s in following if s is not None])``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.knowledge import JOINS_AND_STACKS
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._reads import costly_loop, loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


def samples_left_out(model: FileModel) -> Iterator[Problem]:
    """Find samples that are put together only as far as there is something in them."""
    for call in model.calls(*JOINS_AND_STACKS):
        given = call.argument(0, "tensors")
        values = [given]
        if isinstance(given, cst.Name):
            values = [*assigned(model, given)] or [given]
        kept = values[0] if len(values) == 1 else None
        if not isinstance(kept, cst.ListComp | cst.GeneratorExp) or not _leaves_out(kept):
            continue
        if not _is_transposed(model, kept.for_in.iter):
            continue
        loop = costly_loop(model, call.node)
        if loop is None or model.value(call.node).kind is Kind.NUMBER:
            continue
        yield model.problem(
            call.node,
            f"how many samples {snippet(model, kept)} keeps depends on the batch: every new "
            "number recompiles everything after it",
            suggestion="put zeros where there is nothing, keep all samples, and multiply by the "
            "mask (or use torch.where)",
            related=[loop_place(model, loop)],
        )


def _leaves_out(kept: cst.BaseComp) -> bool:
    """``... for s in states if s is not None``."""
    target = kept.for_in.target
    return isinstance(target, cst.Name) and any(
        isinstance(one.test, cst.Comparison)
        and isinstance(one.test.left, cst.Name)
        and one.test.left.value == target.value
        and isinstance(one.test.comparisons[0].operator, cst.IsNot | cst.NotEqual)
        for one in kept.for_in.ifs
    )


def _is_transposed(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether samples were turned into columns: ``Sample(*zip(*samples)).following``."""
    while isinstance(node, cst.Attribute | cst.Subscript):
        node = node.value
    if isinstance(node, cst.Name):
        # Also where it is one of several: ``states, rewards = zip(*samples)``.
        return any(one is not None and _zips(model, one) for one in model.made_of(node))
    return _zips(model, node)


def _zips(model: FileModel, node: cst.CSTNode) -> bool:
    return any(
        isinstance(part, cst.Call)
        and model.name(part.func) == "builtins.zip"
        and any(argument.star == "*" for argument in part.args)
        for part in walk(node)
    )
