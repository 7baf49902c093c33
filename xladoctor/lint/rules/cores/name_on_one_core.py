"""XLA451: what only the master core has bound, and every core reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places
from xladoctor.lint.rules._exact import around, in_order, is_read
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
    for line in model.nodes(cst.Assign):
        function = model.function_of(line)
        if function is None or not _is_by_master(model, line, function):
            continue
        names = {name for target in line.targets for name in names_bound(target.target)}
        reads = (
            node
            for node in model.within(function.node, cst.Name)
            if node.value in names and _is_read_by_all(model, node, line, function)
        )
        read = next(reads, None)
        entry = model.on_every_core(read) if read is not None else None
        if read is None or entry is None:
            continue
        yield model.problem(
            line,
            f"only the master core binds {read.value}: the others raise UnboundLocalError where "
            "they read it, and the master waits for them at its next collective",
            suggestion="bind it on all cores; guard only what one core alone may do, such as a "
            "download or a print",
            related=[model.place(read, "read on every core"), *entry_places(model, entry)],
        )


def _is_by_master(model: FileModel, node: cst.CSTNode, function: Function) -> bool:
    """Whether a test for the master stands around a node, not around the calls of its function."""
    guard = model.master_only(node)
    return guard is not None and model.function_of(guard.node) is function


def _is_read_by_all(model: FileModel, name: cst.Name, line: cst.Assign, function: Function) -> bool:
    """Whether every core comes to a name that lines for the master alone have bound."""
    if name not in model.tree.scopes or not is_read(model, name) or not in_order(model, line, name):
        return False
    if any(one is line for one in around(model, name)) or model.core_guard(name) is not None:
        return False
    bound = [item.node for item in model.bindings(name.value, name)]
    return (
        bool(bound)
        and model.master_only(name) is None
        and all(model.function_of(one) is function for one in bound)
        and all(_is_by_master(model, one, function) for one in bound)
        and not is_caught(model, name, _CATCH)
    )
