"""XLA451: what only the master core, or the process that starts them, has bound, and all read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.knowledge import SPAWNERS
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, is_main, starts_anew
from xladoctor.lint.rules._exact import around, in_order, is_global, is_read
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
    yield from _of_parent(model)
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
            f"only the master core binds `{read.value}`: the others raise UnboundLocalError where "
            "they read it, and the master waits for them at its next collective",
            suggestion="bind it on all cores; guard only what one core alone may do, such as a "
            "download or a print",
            related=[model.place(read, "read on every core"), *entry_places(model, entry)],
        )


def _of_parent(model: FileModel) -> Iterator[Problem]:
    """``if __name__ == "__main__": flags = parse()``, or ``global flags``, read on spawned cores.

    Spawned processes read the file again, under another name; notebooks have no such file.
    """
    if model.is_notebook or not any(starts_anew(model, start) for start in model.calls(*SPAWNERS)):
        return
    told: set[cst.CSTNode] = set()
    for name in model.nodes(cst.Name):
        if name not in model.tree.scopes or not is_read(model, name):
            continue
        bound = [item.node for item in model.bindings(name.value, name)]
        late = [one for one in bound if not is_name(one, "None")]  # ``flags = None`` at the top
        if not late or late[-1] in told or not all(_is_in_parent(model, one, name) for one in late):
            continue
        entry = model.on_every_core(name)
        start = entry.call if entry is not None else None
        if not isinstance(start, cst.Call) or not starts_anew(model, model.call(start)):
            continue
        if model.function_of(name) is None or is_caught(model, name, _CATCH):
            continue
        told.add(late[-1])
        yield model.problem(
            late[-1],
            f"only the process that starts the cores binds `{name.value}`: the spawned ones read "
            "the file anew without coming here, and "
            + ("have None" if late != bound else "raise NameError"),
            suggestion="bind it at the top of the file, or give it to the cores with args=",
            related=[
                model.place(name, "read on every core"),
                model.place(start, "the cores are started here"),
            ],
        )


def _is_in_parent(model: FileModel, node: cst.CSTNode, name: cst.Name) -> bool:
    """Whether a line that binds a global is one to which the first process alone comes."""
    if node not in model.tree.order or not model.is_here(node):
        return False
    function = model.function_of(node)
    if function is None:
        return any(is_main(model, guard) for guard in model.guards(node))
    if model.on_every_core(node) is not None or not is_global(function, name.value):
        return False
    calls = model.callers(function)
    return bool(calls) and all(
        call.function is not None or any(is_main(model, guard) for guard in model.guards(call.node))
        for call in calls
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
