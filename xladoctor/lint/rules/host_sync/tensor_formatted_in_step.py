"""XLA103: a device tensor becomes text in the step loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rewrites.closures import closure_fix
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import around
from xladoctor.lint.rules._formatting import FORMATTING, formats, only_on_failure
from xladoctor.lint.rules._reads import read_problem, waiting_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.lint.model import FileModel, Problem

_ADVICE = (
    "show it every 100 steps in a step closure: "
    "xm.add_step_closure(show, args=(step, loss.detach()))"
)


@rule("XLA103")
def tensor_formatted_in_step(model: FileModel) -> Iterator[Problem]:
    """Find device tensors that are printed, logged or formatted in hot loops."""
    reported: set[cst.CSTNode] = set()
    for node in model.nodes(*FORMATTING):
        found = formats(model, node)
        if found is None or _inside(model, node, reported) or only_on_failure(model, node):
            continue
        how, tensor = found
        loop = waiting_loop(model, node)
        if loop is not None:
            reported.add(node)
            fix = closure_fix(model, node, loop)
            yield read_problem(model, node, tensor, loop, how, _ADVICE, fix)


def _inside(model: FileModel, node: cst.CSTNode, reported: set[cst.CSTNode]) -> bool:
    return any(parent in reported for parent in around(model, node))
