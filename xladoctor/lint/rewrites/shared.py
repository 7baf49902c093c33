"""The fix of a model that all cores share: each core moves a copy of its own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.findings import Edit, Position
from xladoctor.lint.model import walk
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import line_of
from xladoctor.lint.rules._exact import reads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Function


@dataclasses.dataclass(frozen=True, slots=True)
class Shared:
    """A model that the module makes.

    Attributes:
        name: As what it is moved.
        original: The module's name for it; ``name`` itself, unless it comes in as a parameter.
        made: What it is bound to.
        wrapped: What ``MpModelWrapper`` holds, if it is one.
    """

    name: cst.Name
    original: cst.Name
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
        edits = list(_Copy(model, move, shared).edits())
    except _Odd:
        return None
    return model.fix("Move a copy of its own", edits, safe=False)


class _Copy:
    """What has to be written so that a core moves a copy."""

    def __init__(self, model: FileModel, move: CallSite, shared: Shared) -> None:
        line = line_of(model, move.node)
        if line is None or move.function is None:
            raise _Odd
        self._model = model
        self._move = move
        self._shared = shared
        self._line = line
        self._home: Function = move.function

    def edits(self) -> Iterator[Edit]:
        """All edits of the fix."""
        model, shared = self._model, self._shared
        copy = spell(model, self._move.node, "copy.deepcopy")
        if copy is None:
            raise _Odd
        yield from copy[1]
        yield from self._unwrap()
        moved = f"{copy[0]}({shared.name.value})"
        if shared.original is not shared.name:
            # A parameter: the copy takes its name, and all that follows reads it.
            if self._bound_to() != shared.name.value:
                raise _Odd
            yield _must(model.replace(shared.name, moved))
            return
        target = self._bound_to()
        wrapped = isinstance(shared.wrapped, cst.Name)
        original = shared.wrapped if isinstance(shared.wrapped, cst.Name) else shared.name
        if target is not None and target != shared.name.value:
            yield _must(model.replace(shared.name, moved))
            yield from self._handed_on(original, target)
        elif target is None and wrapped:
            yield _must(model.replace(shared.name, f"{original.value} = {moved}"))
            yield from self._handed_on(original, original.value)
        else:
            local = self._new_name(original.value)
            yield from self._renamed(local, moved, plain=target is None)
            yield from self._handed_on(original, local)

    def _bound_to(self) -> str | None:
        """The name to which the moved model is bound; None for a statement by itself."""
        statement = self._line.body[0]
        if isinstance(statement, cst.Expr) and statement.value is self._move.node:
            return None
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            target = statement.targets[0].target
            if isinstance(target, cst.Name) and statement.value is self._move.node:
                return target.value
        raise _Odd

    def _unwrap(self) -> Iterator[Edit]:
        """The wrapper hands out the one model; its content takes its place under its name."""
        model, shared = self._model, self._shared
        if shared.wrapped is None:
            return
        if len(model.bindings(shared.original.value, shared.original)) != 1:
            raise _Odd
        yield _must(model.replace(shared.made, model.tree.text(shared.wrapped).strip()))
        for use in reads(model, shared.original):
            # The module's own code may ask for the one model: it stands there for itself.
            site = model.parent(use)
            moves = isinstance(site, cst.Attribute) and site.attr.value == "to"
            if use is not shared.name and (model.function_of(use) is not None or not moves):
                raise _Odd

    def _new_name(self, name: str) -> str:
        local = f"core_{name}"
        if any(node.value == local for node in self._model.nodes(cst.Name)):
            raise _Odd
        return local

    def _renamed(self, local: str, moved: str, *, plain: bool) -> Iterator[Edit]:
        """Give the copy a name of its own: the module's name cannot be bound in the function."""
        model, shared = self._model, self._shared
        statement = self._line.body[0]
        if plain:
            yield _must(model.replace(shared.name, f"{local} = {moved}"))
        else:
            assert isinstance(statement, cst.Assign)
            yield _must(model.replace(statement.targets[0].target, local))
            yield _must(model.replace(shared.name, moved))
            yield from self._not_global()

    def _not_global(self) -> Iterator[Edit]:
        """Take the model out of the function's ``global`` statement."""
        model, name = self._model, self._shared.name.value
        found = [
            part
            for part in walk(self._home.node)
            if isinstance(part, cst.Global) and any(x.name.value == name for x in part.names)
        ]
        if len(found) != 1 or model.function_of(found[0]) is not self._home:
            raise _Odd
        rest = [item.name.value for item in found[0].names if item.name.value != name]
        if rest:
            yield _must(model.replace(found[0], f"global {', '.join(rest)}"))
        else:
            yield _must(model.remove_statement(found[0]))

    def _handed_on(self, original: cst.Name, local: str) -> Iterator[Edit]:
        """Let what the core runs read its copy: in the function itself, and in those it calls."""
        model = self._model
        order = model.tree.order
        first = order[self._line]
        readers: dict[Function, None] = {}
        for use in reads(model, original):
            function = model.function_of(use)
            if function is None or use is self._shared.name:
                continue  # the module's own code, before or after the cores
            if not self._within(function):
                if model.on_every_core(use) is not None:
                    readers[function] = None
            elif order[use] < first:
                raise _Odd
            elif original.value != local:
                yield _must(model.replace(use, local))
        for reader in readers:
            yield from self._parameter(reader, local, original.value)

    def _within(self, function: Function | None) -> bool:
        """Whether a function is the one that moves the model, or stands in it."""
        return function is not None and self._home in function.around

    def _parameter(self, reader: Function, local: str, name: str) -> Iterator[Edit]:
        model = self._model
        node = reader.node
        if not isinstance(node, cst.FunctionDef) or reader.owner or reader.outer:
            raise _Odd
        params = node.params
        plain = not (params.kwonly_params or params.star_kwarg or params.posonly_params)
        if not plain or isinstance(params.star_arg, cst.Param) or name in reader.parameters:
            raise _Odd
        if not params.params or any(item.default is not None for item in params.params):
            raise _Odd
        if any(isinstance(part, cst.Global) for part in walk(node)):
            raise _Odd
        calls = model.callers(reader)
        if not calls:
            raise _Odd
        end = model.tree.range(params.params[-1]).end
        place = Position(end.line, end.column + 1)
        yield Edit(f", {name}", place, place)
        for call in calls:
            if not self._within(call.function) or call.has_star:
                raise _Odd
            if model.tree.order[call.node] < model.tree.order[self._line]:
                raise _Odd
            whole = not call.keywords and len(call.positional) == len(reader.parameters)
            given = local if whole else f"{name}={local}"
            yield _must(model.add_argument(call.node, given))


def _must(edit: Edit | None) -> Edit:
    if edit is None:
        raise _Odd
    return edit
