"""XLA451: what only the master core has bound, and every core reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places
from xladoctor.lint.rules._exact import around, in_order
from xladoctor.lint.rules._tolerated import is_caught

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Function, Problem

_CATCH = frozenset({"NameError", "UnboundLocalError", "Exception", "BaseException"})


@rule("XLA451")
def name_on_one_core(model: FileModel) -> Iterator[Problem]:
    """Find names that a function binds under a test for the master alone and reads outside."""
    if not model.is_xla or model.spmd:
        return
    told: set[cst.CSTNode] = set()
    for name in model.nodes(cst.Name):
        function = model.function_of(name)
        if function is None or name not in model.tree.scopes or name.value in function.parameters:
            continue
        given = _given_by_master(model, name, function)
        if given is None or given in told or not _is_read_by_all(model, name, given):
            continue
        entry = model.on_every_core(name)
        if entry is None:
            continue
        told.add(given)
        yield model.problem(
            given,
            f"only the master core binds {name.value}: the others raise UnboundLocalError where "
            "they read it, and the master waits for them at its next collective",
            suggestion="bind it on all cores; guard only what one core alone may do, such as a "
            "download or a print",
            related=[model.place(name, "read on every core"), *entry_places(model, entry)],
        )


def _given_by_master(model: FileModel, name: cst.Name, function: Function) -> cst.CSTNode | None:
    """The statement under a test for the master that alone gives a name its meaning."""
    bound = model.bindings(name.value, name)
    if not bound or any(
        item.kind == "param" or model.function_of(item.node) is not function for item in bound
    ):
        return None
    guards = [model.master_only(item.node) for item in bound]
    # By a test that stands here, not one around the calls of the function.
    if any(one is None or model.function_of(one.node) is not function for one in guards):
        return None
    lines = {_statement(model, item.node) for item in bound}
    return lines.pop() if len(lines) == 1 else None


def _statement(model: FileModel, node: cst.CSTNode) -> cst.CSTNode:
    """The small statement that a node belongs to."""
    return next(
        (x for x in (node, *around(model, node)) if isinstance(x, cst.BaseSmallStatement)), node
    )


def _is_read_by_all(model: FileModel, name: cst.Name, given: cst.CSTNode) -> bool:
    if not in_order(model, given, name) or any(x is given for x in around(model, name)):
        return False
    parent = model.parent(name)
    if isinstance(parent, cst.Arg) and parent.keyword is name:
        return False
    if isinstance(parent, cst.Attribute) and parent.value is not name:
        return False
    return (
        model.master_only(name) is None
        and model.core_guard(name) is None
        and not is_caught(model, name, _CATCH)
    )
