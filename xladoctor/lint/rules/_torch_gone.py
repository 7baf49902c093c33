"""Arguments that the torch of a torch_xla release no longer takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.rules._api import version
from xladoctor.lint.rules._constants import of_class
from xladoctor.lint.rules._given import entries, given
from xladoctor.lint.rules._sources import sources
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem


def lost_arguments(model: FileModel) -> Iterator[Problem]:
    """``StepLR(optimizer, 1, verbose=True)``, which raises TypeError whatever it is given.

    Also where a class of settings says which scheduler it is, and with what
    (``config.scheduler(optimizer, **config.scheduler_params)``).
    """
    rows = catalogue.table("api")["argument"] if model.is_xla else ()
    for row in rows:
        if model.target < version(row["removed_in"]):
            continue
        for call in model.calls():
            made = _one_of(model, call, row["of"])
            value = _given(model, call).get(row["name"]) if made is not None else None
            if made is None or value is None or tolerated(model, call.node):
                continue
            here = model.is_here(value)
            yield model.problem(
                value if here else call.node,
                f"{made.rpartition('.')[2]} has no {row['name']} since torch {row['removed_in']}: "
                "this raises TypeError",
                suggestion=row["advice"],
                related=[] if not here or value in _own(call) else [model.place(call.node, "here")],
                fix=model.fix(
                    f"Leave {row['name']} out", model.remove_argument(call.node, value), safe=True
                ),
            )


def _own(call: CallSite) -> list[cst.BaseExpression]:
    return [argument.value for argument in call.node.args]


def _one_of(model: FileModel, call: CallSite, names: list[str]) -> str | None:
    """The name of these that a call calls, also through a setting."""
    if call.target is not None:
        return None
    func = call.node.func
    if call.name is None and isinstance(func, cst.Name | cst.Attribute):
        ways = [*_of_settings(model, func), *(sources(model, func) or ())]
    else:
        ways = [func]
    return next((name for way in ways if (name := model.name(way)) in names), None)


def _given(model: FileModel, call: CallSite) -> dict[str, cst.BaseExpression]:
    """What a call is given by name, with the dictionaries of classes of settings."""
    found = given(model, call)
    for argument in call.node.args:
        for made in _of_settings(model, argument.value) if argument.star == "**" else ():
            found |= dict(entries(model, made))
    return found


def _of_settings(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What the classes of the file give ``config.scheduler`` in their bodies."""
    if isinstance(node, cst.Attribute):
        written = (of_class(cls.node, node.attr.value) for cls in model.classes)
        yield from (one for one in written if one is not None)
