"""What fixes write in the place of ``xm.reduce_gradients`` where that loses what it reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import indent_of

if TYPE_CHECKING:
    from xladoctor.findings import Edit
    from xladoctor.lint.model import FileModel

#: Names for the loop's variable: the first that is free.
_NAMES = ("p", "param", "parameter")


def given_reduced(model: FileModel, node: cst.CSTNode, optimizer: str) -> list[Edit | None] | None:
    """Before a node, give each parameter of an optimizer the mean of its gradient over all cores.

    The gradient is another tensor then, which a clip that writes through ``detach()`` keeps
    (measured, ``rules/XLA303-clip-before-reduce.md``).

    Args:
        model: The file.
        node: What it must stand before.
        optimizer: How the file names the optimizer there.

    Returns:
        None if the file cannot name torch_xla's functions there, or has all of our names.
    """
    reduce = spell(model, node, "torch_xla.core.xla_model.all_reduce")
    total = spell(model, node, "torch_xla.core.xla_model.REDUCE_SUM")
    cores = spell(model, node, "torch_xla.runtime.world_size")
    free = next((name for name in _NAMES if _is_free(model, name, node)), None)
    if reduce is None or total is None or cores is None or free is None:
        return None
    if not _is_free(model, "group", node):
        return None
    call = f"{reduce[0]}({total[0]}, {free}.grad, scale=1.0 / {cores[0]}())"
    lines = (
        f"for group in {optimizer}.param_groups:",
        f'    for {free} in group["params"]:',
        f"        if {free}.grad is not None:",
        f"            {free}.grad = {call}",
    )
    imports = {edit.content: edit for edit in (*reduce[1], *total[1], *cores[1])}
    line = model.tree.statement(node)
    if line is None:
        return None
    text = f"\n{indent_of(model, line.node)}".join(lines)
    return [*imports.values(), model.insert_before(node, text)]


def _is_free(model: FileModel, name: str, node: cst.CSTNode) -> bool:
    """Whether a name means nothing at a node, or is the variable of other loops alone."""
    uses = [use for use in model.names_in(model.function_of(node)) if use.value == name]
    return not any(model.bindings(name, node)) or all(
        any(
            isinstance(loop, cst.For)
            and isinstance(loop.target, cst.Name)
            and loop.target.value == name
            and all(around is not loop for around in model.tree.ancestors(node))
            for loop in model.tree.ancestors(use)
        )
        for use in uses
    )
