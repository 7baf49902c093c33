"""Whether code for CUDA belongs to a program for XLA devices, or to one for GPUs beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, OnXla, walk
from xladoctor.lint.model.turns import leaves

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel, Function

#: How many functions are asked on the way to the program that runs the code.
_MOST = 36


def runs_with_xla(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether code runs on XLA devices, as far as its own file or those that call it say.

    A script for GPUs and one for TPUs share helpers, so they are linked. What the first does runs
    with the second only where a file that speaks of XLA calls it; of what nobody is seen to call,
    where such files alone import it.
    """
    if model.in_unit_test(node):
        return False  # a test says itself what it is for
    where = model.on_xla(node)
    if where is OnXla.MAYBE and _behind_branch_for_xla(model, node):
        return True
    if where is not OnXla.YES:
        return False
    if model.says_xla(node):
        return True
    importers = _importers(model)
    function = model.function_of(node)
    if function is None:
        return any(one.says_xla(one.tree.module) for one in importers)
    seen: set[Function] = set()
    if _is_called(model, function, seen):
        return True
    called = any(model.callers(one) or _makers(model, one) for one in seen)
    return not called and bool(importers) and all(_brings(model, x, function) for x in importers)


def _behind_branch_for_xla(model: FileModel, node: cst.CSTNode) -> bool:
    """``if is_torch_xla_available(): world = xr.world_size()``, and then ``.to("cuda")``.

    A function that does something on XLA devices first runs the rest of it there too.
    """
    function = model.function_of(node)
    if function is None or not isinstance(function.node, cst.FunctionDef):
        return False
    if any(guard.runs is not None for guard in model.guards(node)):
        return False  # what it asks is not for all devices
    around = set(model.tree.ancestors(node))
    for part in walk(function.node.body, into_functions=False):
        if not isinstance(part, cst.If) or part in around or model.parent(part) not in around:
            continue
        if model.on_xla(part.body.body[0]) is not OnXla.YES or leaves(part.body):
            continue
        calls = model.calls_in(part.body)
        if any((call.name or "").startswith("torch_xla.") for call in calls):
            return True
    return False


def _importers(model: FileModel) -> list[FileModel]:
    module = model.tree.module
    return [other for other in model.linked if module in other.names.helpers()]


def _brings(model: FileModel, importer: FileModel, function: Function) -> bool:
    """Whether a file that speaks of XLA imports a function, its class, or all of its file."""
    if not importer.says_xla(importer.tree.module):
        return False
    *_, outermost = function.around
    top = outermost.owner.name if outermost.owner is not None else outermost.name
    defined = {one.name for one in model.classes}
    defined.update(one.name for one in model.tree.functions.values())
    named = {
        alias.name.value
        for statement in importer.tree.imports
        if isinstance(statement, cst.ImportFrom) and not isinstance(statement.names, cst.ImportStar)
        for alias in statement.names
        if isinstance(alias.name, cst.Name)
    }
    return top in named or not named & defined  # else it imports the file: ``import rewards``


def _is_called(model: FileModel, function: Function, seen: set[Function]) -> bool:
    """Whether a file that speaks of XLA calls a function, or makes objects of its class."""
    if function in seen or len(seen) >= _MOST:
        return False
    seen.add(function)
    for place in (*(call.node for call in model.callers(function)), *_makers(model, function)):
        if model.on_xla(place) is not OnXla.YES:
            continue  # in a library that has other devices too: some of its calls are for those
        around = model.function_of(place)
        if model.says_xla(place) or (around is not None and _is_called(model, around, seen)):
            return True
    return function.outer is not None and _is_called(model, function.outer, seen)


def _makers(model: FileModel, function: Function) -> list[cst.CSTNode]:
    """The calls that make objects of a method's class, of those built on it too."""
    owner = function.owner
    if owner is None:
        return []
    return [
        call.node
        for one in (model, *model.linked)
        for call in one.calls()
        if isinstance(call.target, Class)
        and (call.target is owner or owner.name in one.bases(call.target))
    ]
