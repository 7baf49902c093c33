"""The fix of a model that all cores share: each core moves a copy of its own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.findings import Edit, Position
from xladoctor.lint.model import walk
from xladoctor.lint.rules._exact import reads
from xladoctor.lint.rules._imports import spell
from xladoctor.lint.rules._moves import line_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Function


@dataclasses.dataclass(frozen=True, slots=True)
class Shared:
    """A model that the module makes.

    Attributes:
        name: As what it is moved.
        made: What it is bound to.
        wrapped: What ``MpModelWrapper`` holds, if it is one.
    """

    name: cst.Name
    made: cst.BaseExpression
    wrapped: cst.BaseExpression | None


class _Odd(Exception):  # noqa: N818 (it is no error of anybody's)
    """The model is used in a way that is not understood."""


def shared_fix(model: FileModel, move: CallSite, shared: Shared) -> Fix | None:
    """Move ``copy.deepcopy(model)``, and hand it to the functions that took the module's.

    Args:
        model: The file.
        move: ``model.to(device)``.
        shared: The model.
    """
    try:
        edits = list(_edits(model, move, shared))
    except _Odd:
        return None
    return model.fix("Move a copy of its own", edits, safe=False)


def _edits(model: FileModel, move: CallSite, shared: Shared) -> Iterator[Edit]:
    copy = spell(model, move.node, "copy.deepcopy")
    line = line_of(model, move.node)
    if copy is None or line is None or move.function is None:
        raise _Odd
    yield from copy[1]
    source = shared.name.value
    if shared.wrapped is not None:
        # The wrapper hands out the one model; its content takes its place under its name.
        yield _must(model.replace(shared.made, model.tree.text(shared.wrapped).strip()))
        if any(use is not shared.name for use in reads(model, shared.name)):
            raise _Odd  # moved in several places, or asked for something else
    original = shared.wrapped if isinstance(shared.wrapped, cst.Name) else shared.name
    statement = line.body[0]
    moved = f"{copy[0]}({source})"
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target = statement.targets[0].target
        if not isinstance(target, cst.Name) or statement.value is not move.node:
            raise _Odd
        local = target.value
        yield _must(model.replace(shared.name, moved))
    elif isinstance(statement, cst.Expr) and statement.value is move.node:
        if original is shared.name:
            raise _Odd  # ``model = deepcopy(model)`` would read the local name
        local = original.value
        yield _must(model.replace(shared.name, f"{local} = {moved}"))
    else:
        raise _Odd
    if local == source:
        raise _Odd
    yield from _handed_on(model, move.function, original, shared.name, local, line)


def _handed_on(
    model: FileModel,
    home: Function,
    original: cst.Name,
    moved: cst.Name,
    local: str,
    line: cst.CSTNode,
) -> Iterator[Edit]:
    """Give the copy to the functions that read the module's model, as a parameter."""
    order = model.tree.order
    readers: dict[Function, None] = {}
    for use in reads(model, original):
        function = model.function_of(use)
        if function is None:
            continue  # the module's own code, before the cores start
        if function is not home:
            readers[function] = None
        elif use is not moved and (original.value != local or order[use] < order[line]):
            raise _Odd
    for reader in readers:
        yield from _parameter(model, reader, home, local, original.value, order[line])


def _parameter(
    model: FileModel, reader: Function, home: Function, local: str, name: str, after: int
) -> Iterator[Edit]:
    node = reader.node
    if not isinstance(node, cst.FunctionDef) or reader.owner or reader.outer:
        raise _Odd
    params = node.params
    plain = not (params.kwonly_params or params.star_kwarg or params.posonly_params)
    if not plain or isinstance(params.star_arg, cst.Param) or name in reader.parameters:
        raise _Odd
    if any(item.default is not None for item in params.params):
        raise _Odd
    if any(isinstance(part, cst.Global) for part in walk(node)):
        raise _Odd
    calls = model.callers(reader)
    if not calls:
        raise _Odd
    if params.params:
        end = model.tree.range(params.params[-1]).end
        place = Position(end.line, end.column + 1)
        yield Edit(f", {name}", place, place)
    else:
        raise _Odd
    for call in calls:
        if call.function is not home or call.has_star or model.tree.order[call.node] < after:
            raise _Odd
        whole = not call.keywords and len(call.positional) == len(reader.parameters)
        given = local if whole else f"{name}={local}"
        yield _must(model.add_argument(call.node, given))


def _must(edit: Edit | None) -> Edit:
    if edit is None:
        raise _Odd
    return edit
