"""Gradients that ``xm.reduce_gradients`` has reduced when ``xm.optimizer_step`` comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla, walk
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP, REDUCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: What makes or drops gradients.
_FRESH = frozenset({"zero_grad", "backward"})


def reduced_before(model: FileModel, step: CallSite) -> CallSite | None:
    """The reduction of the same gradients that runs before a step that reduces them itself.

    It stands in a line above the step, or above a block that the step stands in, under a condition
    of its own or not, or in a function that such a line calls.
    """
    optimizer = step.argument(0, "optimizer")
    for line in _lines_above(model, step.node):
        calls = [*model.calls_in(line)]
        for call in calls:
            if call.name == REDUCE:
                found = call if _is_of(call, optimizer) else None
            else:
                found = _reduced_in(model, call, optimizer)
            if found is not None and not _other_way(model, found, step):
                return found
        if any(call.method in _FRESH or call.name == OPTIMIZER_STEP for call in calls):
            return None
    return None


def _lines_above(model: FileModel, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The lines that run before a node in its loop or function, the nearest first."""
    child: cst.CSTNode = node
    parent = model.parent(child)
    while parent is not None and not isinstance(child, cst.FunctionDef | cst.For | cst.While):
        if isinstance(parent, cst.IndentedBlock):
            above = [*parent.body]
            yield from reversed(above[: next(i for i, x in enumerate(above) if x is child)])
        child, parent = parent, model.parent(parent)


def _is_of(reduction: CallSite, optimizer: cst.BaseExpression | None) -> bool:
    return same_name(reduction.argument(0, "optimizer"), optimizer)


def _reduced_in(
    model: FileModel, call: CallSite, optimizer: cst.BaseExpression | None
) -> CallSite | None:
    """The reduction in a method or function that a line calls: of ``self.optimizer`` or given."""
    for inner in model.reached(call.node):
        function = inner.function
        given = inner.argument(0, "optimizer") if inner.name == REDUCE else None
        if function is None or given is None:
            continue
        if isinstance(given, cst.Name) and given.value in function.parameters:
            given = call.given_to(function, given.value) if call.target is function else None
        elif call.function is None or function.owner is not call.function.owner:
            continue  # a name of another place
        if same_name(given, optimizer):
            return inner
    return None


def _other_way(model: FileModel, reduction: CallSite, step: CallSite) -> bool:
    """Whether no batch comes to both: the reduction has a step of its own, or other devices."""
    if model.on_xla(reduction.node) is OnXla.NO:
        return True
    asked = {model.tree.text(x.test).strip(): x.when for x in model.guards(step.node)}
    for guard in model.guards(reduction.node):
        if asked.get(model.tree.text(guard.test).strip(), guard.when) is not guard.when:
            return True
    return any(_ends_there(model, block) for block in _own_blocks(model, reduction, step))


def _own_blocks(
    model: FileModel, reduction: CallSite, step: CallSite
) -> Iterator[cst.IndentedBlock]:
    """The branches that a reduction stands in and the step does not."""
    shared = set(model.tree.ancestors(step.node))
    for node in model.tree.ancestors(reduction.node):
        if node in shared or isinstance(node, cst.FunctionDef):
            return
        if isinstance(node, cst.IndentedBlock) and isinstance(
            model.parent(node), cst.If | cst.Else
        ):
            yield node


def _ends_there(model: FileModel, block: cst.IndentedBlock) -> bool:
    """Whether a branch leaves, or takes the step itself."""
    leaves = cst.Return | cst.Continue | cst.Break
    if any(isinstance(node, leaves) for node in walk(block, into_functions=False)):
        return True
    return any(call.method == "step" and call.target is None for call in model.calls_in(block))
