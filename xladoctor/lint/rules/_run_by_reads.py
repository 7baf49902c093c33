"""Collectives whose results are read behind them: the read runs them, on every core that reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.taken import names_set
from xladoctor.lint.rules._exact import in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model import CallSite, FileModel

#: Functions from a collective to where its result is read.
_DEPTH = 3


def run_by_read(
    model: FileModel, made: CallSite, within: Sequence[CallSite], depth: int = _DEPTH
) -> bool:
    """Whether all cores read what a collective gives before they leave a piece of code.

    ``total = reduce_sum(total)``, then ``total.item()``: nothing of it is pending behind that.

    Args:
        model: The file.
        made: The collective, or a call that gives its result.
        within: The calls that the piece of code runs.
        depth: How many functions may give the result back.
    """
    if made.function is None or not model.is_here(made.node):
        return False
    line: cst.CSTNode | None = None
    for line in model.tree.ancestors(made.node):
        if model.effects.is_read(line):
            return model.master_only(made.node) is None
        if isinstance(line, cst.BaseSmallStatement):
            break
    if isinstance(line, cst.Return):
        callers = [one for one in within if one.target is made.function]
        return bool(callers and depth) and all(
            run_by_read(model, one, within, depth - 1) for one in callers
        )
    names = _taken_from(model, made, names_set(line)) if isinstance(line, cst.Assign) else set()
    return any(
        model.effects.is_read(node)
        and any(isinstance(part, cst.Name) and part.value in names for part in walk(node))
        and in_order(model, made.node, node)
        and not _under_condition(model, node, made)
        for node in walk(made.function.node, into_functions=False)
    )


def _under_condition(model: FileModel, node: cst.CSTNode, made: CallSite) -> bool:
    """Whether a branch decides about a node that does not decide about a call before it."""
    over = [one for one in model.tree.ancestors(node) if isinstance(one, cst.If | cst.IfExp)]
    both = set(model.tree.ancestors(made.node))
    return model.master_only(node) is not None or any(one not in both for one in over)


def _taken_from(model: FileModel, made: CallSite, names: set[str]) -> set[str]:
    """These names, and those that lines behind the call compute of them."""
    assert made.function is not None
    found = set(names)
    for line in walk(made.function.node, into_functions=False):
        if isinstance(line, cst.Assign) and in_order(model, made.node, line):
            used = (part.value for part in walk(line.value) if isinstance(part, cst.Name))
            found |= names_set(line) if not found.isdisjoint(used) else set()
    return found
