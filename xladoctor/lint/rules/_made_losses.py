"""What a loss is made of in the loop that calls its ``backward``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.lint.model import FileModel


def outputs_of_models(model: FileModel, nodes: Iterable[cst.CSTNode], losses: set[str]) -> set[str]:
    """What a model gives and a loss is made of, under the one name that it has there.

    Args:
        model: The file.
        nodes: All of a loop.
        losses: The names of losses.
    """
    bound = [pair for node in nodes for pair in assigned(node)]
    names = [name for name, _ in bound]
    into = {
        argument.value.value
        for name, value in bound
        if name in losses and value is not None
        for part in walk(value)
        if isinstance(part, cst.Call)
        for argument in part.args
        if isinstance(argument.value, cst.Name)
    }
    return {
        name
        for name, value in bound
        if name in into - losses
        and names.count(name) == 1
        and isinstance(value, cst.Call)
        and model.value(value.func).kind is Kind.MODEL
    }


def assigned(node: cst.CSTNode) -> Iterator[tuple[str, cst.BaseExpression | None]]:
    """The names that a statement binds, each with its value."""
    targets = (
        [one.target for one in node.targets]
        if isinstance(node, cst.Assign)
        else [node.target]
        if isinstance(node, cst.AugAssign | cst.AnnAssign)
        else []
    )
    value = node.value if isinstance(node, cst.Assign) else None
    yield from ((target.value, value) for target in targets if isinstance(target, cst.Name))
