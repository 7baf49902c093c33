"""Batches that leave samples out: ``torch.cat([s for s in following if s is not None])``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.conditions import compared
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.knowledge import JOINS_AND_STACKS
from xladoctor.lint.rules._collate import collate_functions
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


def samples_skipped(model: FileModel) -> Iterator[Problem]:
    """Find collate functions that skip what could not be read: batches of any number of samples."""
    for function in dict.fromkeys(collate_functions(model)) if model.is_xla else ():
        batch = next(iter(function.arguments), None)
        if batch is None or not model.is_here(function.node):
            continue
        nodes = list(walk(function.node, into_functions=False))
        skips = next((one for one in nodes if _skips(model, one, batch)), None)
        if skips is not None and not any(_fills_up(model, one) for one in nodes):
            yield model.problem(
                skips,
                "a batch is as large as the samples that are left: each new number recompiles the "
                "whole step, and cores whose numbers differ run different graphs",
                suggestion="leave such samples out of the Dataset, or give another sample in "
                "their place",
            )


def _skips(model: FileModel, node: cst.CSTNode, batch: str) -> bool:
    """``[s for s in batch if s is not None]``, ``filter(lambda s: s is not None, batch)``."""
    if isinstance(node, cst.ListComp | cst.GeneratorExp):
        same = isinstance(node.for_in.target, cst.Name) and is_name(
            node.elt, node.for_in.target.value
        )
        return same and is_name(node.for_in.iter, batch) and _leaves_out(node)
    if not isinstance(node, cst.Call) or model.name(node.func) != "builtins.filter":
        return False
    test, over = (*(argument.value for argument in node.args), None, None)[:2]
    if over is None or not is_name(over, batch):
        return False
    body = test.body if isinstance(test, cst.Lambda) else test
    none = isinstance(body, cst.Comparison) and isinstance(
        body.comparisons[0].operator, cst.IsNot | cst.NotEqual
    )
    return none or is_name(body, "None")


def _fills_up(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a collate function asks how many there are, or takes others for those it skips."""
    if isinstance(node, cst.Comparison):
        numbers = [model.literal(side) for side in compared(node)]
        return 0 not in numbers and any(
            isinstance(side, cst.Call) and model.name(side.func) == "builtins.len"
            for side in compared(node)
        )
    return isinstance(node, cst.BinaryOperation) and any(
        isinstance(side, cst.Call) and model.name(side.func) == "builtins.len"
        for side in (node.left, node.right)
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
