"""Methods that a framework calls: whether those that programs write anew fit its calls."""

from __future__ import annotations

import ast
import dataclasses
import fnmatch
import functools
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import walk
from xladoctor.lint.rules._itself import whose
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from xladoctor.lint.model import Class, FileModel, Function, Problem

#: What a decorator of these makes is called as what it stands on.
_KEEPS = ("torch.", "typing.override", "typing_extensions.override")
_KEEPS_BY_LAST = frozenset({"override", "rank_zero_only"})


@dataclasses.dataclass(frozen=True, slots=True)
class _Takes:
    """The parameters of a method, without ``self``.

    Attributes:
        places: Those that may be given by their places, in order.
        needed: Those without a default, of all.
        named: Those that are given by their names alone.
        any_place: Whether it takes any number by places (``*args``).
        any_name: Whether it takes any names (``**kwargs``).
    """

    places: tuple[str, ...]
    needed: frozenset[str]
    named: frozenset[str] = frozenset()
    any_place: bool = False
    any_name: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class _Called:
    """A row of ``rules/tables/called.toml``.

    Attributes:
        name: The method; of callbacks a pattern of several.
        written: How the framework's class writes it.
        takes: What that takes.
        gives: How many arguments the framework gives by their places.
        names: What it gives by name.
        by: The methods on the way to the call.
        since: The first release that calls it like this (``Lightning 2.0``), or "".
    """

    name: str
    written: str
    takes: _Takes
    gives: int
    names: tuple[str, ...]
    by: tuple[str, ...]
    since: str

    def is_later(self, model: FileModel) -> bool:
        """Whether the project pins releases that call it otherwise."""
        framework, _, release = self.since.lower().partition(" ")
        return bool(release) and model.keeps_old(framework, release)


@functools.cache
def _rows(of: str) -> Sequence[_Called]:
    return [_called(row) for row in catalogue.table("called")["called"] if row["of"] == of]


def _called(row: Mapping[str, Any]) -> _Called:
    pattern, _, rest = str(row["method"]).partition("(")
    function = ast.parse(f"def name({rest}: pass").body[0]
    call = ast.parse("name(" + str(row["call"]).partition("(")[2], mode="eval").body
    assert isinstance(function, ast.FunctionDef)
    assert isinstance(call, ast.Call)
    given = function.args
    places = tuple(one.arg for one in given.args[1:])
    takes = _Takes(
        places,
        frozenset(places[: len(places) - len(given.defaults)]),
        any_place=given.vararg is not None,
        any_name=given.kwarg is not None,
    )
    names = tuple(one.arg for one in call.keywords if one.arg is not None)
    by = tuple(row["by"])
    return _Called(pattern, str(row["method"]), takes, len(call.args), names, by, row["since"])


def misfits(
    model: FileModel,
    of: str,
    bases: Collection[str],
    framework: str,
    told: AbstractSet[cst.CSTNode] = frozenset(),
) -> Iterator[Problem]:
    """``def compute_loss(self, model, inputs)``, which the Trainer gives more than that.

    Args:
        model: The file.
        of: The class in the table.
        bases: The names that a class on it may be built on; each base must be one.
        framework: What it is called in messages.
        told: Methods and parameters that are told for another reason.
    """
    for owner in model.classes:
        found = model.library_bases(owner)
        if not found or not all(base in bases for base in found):
            continue
        for method in owner.methods.values():
            rows = (row for row in _rows(of) if fnmatch.fnmatchcase(method.name, row.name))
            row = next(rows, None)
            if row is not None and told.isdisjoint({method.node, *_parameters(method)}):
                yield from _misfit(model, owner, method, row, framework)
    yield from _calls(model, of, bases, framework)


def _misfit(
    model: FileModel, owner: Class, method: Function, row: _Called, framework: str
) -> Iterator[Problem]:
    if _calls_itself(model, owner, row) or not _is_plain(model, method):
        return
    if tolerated(model, method.node) or row.is_later(model):
        return
    misfit = _misfit_of(_takes(method), row.gives, row.names)
    if misfit is not None:
        since = f"since {row.since}, " if row.since else ""
        yield model.problem(
            method.node,
            f"{since}{framework} calls {method.name} {misfit.called}{misfit.but}: this raises "
            "TypeError",
            suggestion=f"def {row.written.replace(row.name, method.name, 1)}",
        )


def _calls(model: FileModel, of: str, bases: Collection[str], framework: str) -> Iterator[Problem]:
    """``self._save_checkpoint(model, trial, metrics=metrics)``, which takes no metrics any more."""
    rows = {row.name: row for row in _rows(of)}
    for node in model.nodes(cst.Call):
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            continue
        row, held = rows.get(node.func.attr.value), node.func.value
        owner = whose(model, held) if row is not None else None
        if row is None or owner is None:
            continue
        found = model.library_bases(owner)
        if not found or not all(base in bases for base in found):
            continue
        if model.method(owner, row.name) is not None and row.name not in owner.methods:
            continue  # a class of the program between the two has it
        if row.name in owner.methods and not model.is_super(held):
            continue
        if any(one.star for one in node.args) or tolerated(model, node) or row.is_later(model):
            continue
        names = [one.keyword.value for one in node.args if one.keyword is not None]
        misfit = _misfit_of(row.takes, len(node.args) - len(names), names)
        if misfit is not None:
            yield model.problem(
                node,
                f"{row.name} of {framework} is called {misfit.called}{misfit.but}: this raises "
                "TypeError",
                suggestion=f"it is {row.written} today",
            )


def _calls_itself(model: FileModel, owner: Class, row: _Called) -> bool:
    """Whether the program writes a method on the way to the call, without calling the old one."""
    for name in row.by:
        method = model.method(owner, name)
        if method is not None and not any(
            isinstance(node, cst.Call)
            and isinstance(node.func, cst.Attribute)
            and node.func.attr.value == name
            and model.is_super(node.func.value)
            for node in walk(method.node)
        ):
            return True
    return False


def _is_plain(model: FileModel, method: Function) -> bool:
    """Whether nothing comes between a call and a method of an object."""
    if not isinstance(method.node, cst.FunctionDef) or not method.parameters or method.is_static:
        return False
    for decorator in method.decorators:
        made = decorator.func if isinstance(decorator, cst.Call) else decorator
        name = model.name(made) or model.tree.text(made).strip()
        if not name.startswith(_KEEPS) and name.rpartition(".")[2] not in _KEEPS_BY_LAST:
            return False
    return True


def _parameters(method: Function) -> Iterator[cst.Param]:
    given = method.node.params
    yield from (*given.posonly_params, *given.params, *given.kwonly_params)


def _takes(method: Function) -> _Takes:
    assert isinstance(method.node, cst.FunctionDef)
    given = method.node.params
    places = [*given.posonly_params, *given.params]
    own = {place.name.value for place in places[:1]}
    needed = {
        one.name.value for one in (*places, *given.kwonly_params) if one.default is None
    } - own
    return _Takes(
        tuple(one.name.value for one in places[1:]),
        frozenset(needed),
        frozenset(one.name.value for one in given.kwonly_params),
        isinstance(given.star_arg, cst.Param),
        given.star_kwarg is not None,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Misfit:
    """Why a call does not fit: how it is called, and what it takes, as parts of a sentence."""

    called: str
    but: str


def _misfit_of(takes: _Takes, gives: int, names: Sequence[str]) -> _Misfit | None:
    """Why a call of so many arguments by place, and these by name, does not fit."""
    if gives > len(takes.places) and not takes.any_place:
        word = "argument" if gives == 1 else "arguments"
        return _Misfit(f"with {gives} {word} by position", f", and it takes {len(takes.places)}")
    known = {*takes.places[gives:], *takes.named}
    unknown = [] if takes.any_name else [name for name in names if name not in known]
    if unknown:
        return _Misfit(f"with {unknown[0]}=", ", which it does not take")
    missing = [
        name
        for name in (*takes.places[gives:], *sorted(takes.named))
        if name in takes.needed and name not in names
    ]
    return _Misfit(f"without {missing[0]}", ", which it needs") if missing else None
