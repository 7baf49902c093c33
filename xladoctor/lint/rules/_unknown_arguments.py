"""Arguments that functions of torch and torch_xla do not take, or lack."""

from __future__ import annotations

import difflib
import functools
import math
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import OnXla
from xladoctor.lint.rules._api import version
from xladoctor.lint.rules._constants import class_values
from xladoctor.lint.rules._given import entries, given
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._sources import sources
from xladoctor.lint.rules._tolerated import is_caught, tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem


_CATCH = frozenset({"TypeError", "Exception", "BaseException"})


@functools.cache
def _parameters() -> Mapping[str, frozenset[str]]:
    """Function to the keywords that it takes (``tables/parameters.toml``)."""
    rows = catalogue.table("parameters")["function"]
    return {row["of"]: frozenset(row["names"]) for row in rows}


@functools.cache
def _needs() -> Mapping[str, tuple[Sequence[str], float]]:
    """Function to what it cannot do without, and to how much it takes by position."""
    rows = catalogue.table("parameters")["function"]
    return {
        row["of"]: (
            row.get("needs", ()),
            math.inf if "any" in row else row.get("most", len(row["names"])),
        )
        for row in rows
        if "gives" not in row
    }


@functools.cache
def _raises_later() -> Mapping[str, str]:
    """Function to when it hands its keywords on, and that raises."""
    rows = catalogue.table("parameters")["function"]
    return {row["of"]: f" {row['when']}" for row in rows if "when" in row}


def unknown_arguments(model: FileModel) -> Iterator[Problem]:
    """``StepLR(optimizer, 1, verbose=True)``, ``DataLoader(data, droplast=True)``: TypeError.

    Also where a class of settings says which scheduler it is, and with what
    (``config.scheduler(optimizer, **config.scheduler_params)``).
    """
    if not model.is_xla:
        return
    newest = version(catalogue.table("parameters")["torch_xla"])[:2]
    for call in model.calls():
        for made, name, value in _untaken(model, call):
            lost = _lost(made, name)
            if model.target < (newest if lost is None else version(lost["removed_in"])):
                continue
            if not tolerated(model, call.node, missing=False) and not is_caught(
                model, call.node, _CATCH
            ):
                yield _problem(model, call, made, name, value)
        if model.target >= newest:
            yield from _misfit(model, call)


def _misfit(model: FileModel, call: CallSite) -> Iterator[Problem]:
    """``with autocast():`` of torch_xla, which asks for the device: TypeError."""
    made = call.name or ""
    if made not in _needs() or call.target is not None or call.has_star:
        return
    if _is_other(model, call, made):
        return
    needs, most = _needs()[made]
    placed = len(call.positional)
    missing = [name for name in needs[placed:] if name not in call.keywords]
    if not missing and placed <= most:
        return
    if tolerated(model, call.node, missing=False) or is_caught(model, call.node, _CATCH):
        return
    last = made.rpartition(".")[2]
    what = f"needs {missing[0]}" if missing else f"takes {most} arguments by position"
    yield model.problem(
        call.node,
        f"{last} {what}: this raises TypeError",
        suggestion=f"give it {missing[0]}" if missing else "give the others by name",
    )


def _is_other(model: FileModel, call: CallSite, made: str) -> bool:
    """``FSDP(net, ...)`` in ``else`` of ``if xm:``, where the import of torch_xla has failed.

    The name is that of the import in its place: ``except ImportError: from torch ... import FSDP``.
    """
    return made.startswith("torch_xla.") and model.on_xla(call.node) is OnXla.NO


def _untaken(model: FileModel, call: CallSite) -> Iterator[tuple[str, str, cst.BaseExpression]]:
    """What a call is given by names that its function does not take, each with that function.

    Where it may be one of several, what is written at the call is for all of them.
    """
    told: set[str] = set()
    for at, made in enumerate(_known(model, call)):
        if _is_other(model, call, made):
            continue
        given = _given(model, call) if at == 0 else call.keywords
        for name, value in given.items():
            if name not in _parameters()[made] and name not in told:
                told.add(name)
                yield made, name, value


def _lost(made: str, name: str) -> Mapping[str, str] | None:
    """The row of what older releases took."""
    rows = catalogue.table("api")["argument"]
    return next((row for row in rows if made in row["of"] and row["name"] == name), None)


def _problem(
    model: FileModel, call: CallSite, made: str, name: str, value: cst.BaseExpression
) -> Problem:
    lost = _lost(made, name)
    since = "" if lost is None else f" since torch {lost['removed_in']}"
    later = _raises_later().get(made, "")
    close = difflib.get_close_matches(name, _parameters()[made], n=1, cutoff=0.75)
    advice = f"write {close[0]}" if close else "leave it out"
    if later and name in _parameters()[DATA_LOADER]:
        advice = "give it to the DataLoader that is wrapped"
    own = any(argument.value is value for argument in call.node.args)
    holder = call.node if own else _holder(model, value)
    edit = model.remove_argument(holder, value) if lost is not None and holder else None
    here = model.is_here(value)
    return model.problem(
        value if here else call.node,
        f"{made.rpartition('.')[2]} has no {name}{since}: this raises TypeError{later}",
        suggestion=advice if lost is None else lost["advice"],
        related=[] if own or not here else [model.place(call.node, "given to it here")],
        fix=model.fix(f"Leave {name} out", edit, safe=True),
    )


def _holder(model: FileModel, value: cst.BaseExpression) -> cst.Call | None:
    """``dict(verbose=True)`` around a value."""
    argument = model.parent(value)
    call = model.parent(argument) if isinstance(argument, cst.Arg) else None
    return call if isinstance(call, cst.Call) else None


def _known(model: FileModel, call: CallSite) -> Sequence[str]:
    """The names of what a call calls of which the parameters are known; also through a setting."""
    if call.target is not None:
        return ()
    func, names = call.node.func, [call.name or ""]
    if call.name is None and isinstance(func, cst.Name | cst.Attribute):
        ways = [*_of_settings(model, func), *(sources(model, func) or ())]
        names = [model.name(way) or "" for way in ways]
    return [*dict.fromkeys(name for name in names if name in _parameters())]


def _given(model: FileModel, call: CallSite) -> dict[str, cst.BaseExpression]:
    """What a call is given by name, with the dictionaries of classes of settings."""
    found = given(model, call)
    for argument in call.node.args:
        for made in _of_settings(model, argument.value) if argument.star == "**" else ():
            found |= dict(entries(model, made))
    return found


def _of_settings(model: FileModel, node: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
    """What the classes of the file give ``config.scheduler`` in their bodies."""
    if not isinstance(node, cst.Attribute):
        return ()
    return model.once(class_values).get(node.attr.value, ())
