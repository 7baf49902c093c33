"""Attributes and methods that a library's class has not: ``accelerator.wait_forEveryone()``."""

from __future__ import annotations

import difflib
import functools
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import OnXla
from xladoctor.lint.model.dotted import assignments, last_name
from xladoctor.lint.rules._sources import is_made_in
from xladoctor.lint.rules._tolerated import tolerated
from xladoctor.lint.rules._training_arguments import parsed_as

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model import FileModel, Problem


def unknown_members(model: FileModel) -> Iterator[Problem]:
    """``accelerator.wait_forEveryone()``, of what is certainly an object of the class itself.

    Nothing is told where the program builds classes on it, or sets such an attribute on anything.
    """
    if not model.is_xla:
        return
    for of, known in _members().items():
        package, cls = of.partition(".")[0], of.rpartition(".")[2]
        if not _uses(model, package) or model.holds_copy_of(package):
            continue
        if any(_may_have_more(one, of) for one in (model, *model.linked)):
            continue
        for node in model.nodes(cst.Attribute):
            name = node.attr.value
            if name in known or name.startswith("_") or not _is_one(model, node.value, of):
                continue
            if any(name in one.once(_set) for one in (model, *model.linked)):
                continue
            close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.75)
            if not close and model.keeps_old(package):
                continue
            if tolerated(model, node) or model.on_xla(node) is OnXla.NO:
                continue
            yield model.problem(
                node,
                f"{cls} has no {name}: this raises AttributeError",
                suggestion=f"write {close[0]}" if close else f"ask the {cls} what it has for this",
            )


@functools.cache
def _members() -> Mapping[str, frozenset[str]]:
    """Class to all that its objects have, or once had (which other rules tell)."""
    rows = catalogue.table("frameworks")
    lost: dict[str, set[str]] = {}
    for row in rows["attribute"]:
        lost.setdefault(row["of"], set()).update(row["names"])
    return {row["of"]: frozenset({*row["names"], *lost.get(row["of"], ())}) for row in _rows()}


@functools.cache
def _spelled(of: str) -> frozenset[str]:
    """The dotted names of a class."""
    return frozenset(name for row in _rows() if row["of"] == of for name in (of, *row["also"]))


def _rows() -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = catalogue.table("frameworks")["members"]
    return rows


def _uses(model: FileModel, package: str) -> bool:
    return any(
        name.partition(".")[0] == package
        for one in (model, *model.linked)
        for name in one.names.imported()
    )


def _is_one(model: FileModel, node: cst.BaseExpression, of: str) -> bool:
    """Whether an expression holds an object of the class, whichever branch ran."""
    if not isinstance(node, cst.Name | cst.Attribute):
        return False
    if isinstance(node, cst.Name) and len(model.bindings(node.value, node)) == 1:
        function = model.with_parameter(node)
        said = function.annotation(node.value) if function is not None else None
        if said is not None and model.name(said) in _spelled(of):
            return True
    value = model.value(node)
    if (value.certain and value.type_name in _spelled(of)) or is_made_in(model, node, _spelled(of)):
        return True
    parsed = [*parsed_as(model, node)]
    return bool(parsed) and all(
        one is not None and model.name(one) in _spelled(of) for one in parsed
    )


def _may_have_more(model: FileModel, of: str) -> bool:
    """Whether a file builds classes on it, or sets attributes whose names are not written."""
    cls = of.rpartition(".")[2]
    return any(last_name(base) == cls for owner in model.classes for base in owner.bases) or any(
        _is_one(model, call.positional[0], of)
        for call in model.calls("builtins.setattr")
        if call.positional
    )


def _set(model: FileModel) -> frozenset[str]:
    """The names of all attributes that a file sets, on whatever object."""
    lines = [*model.nodes(cst.Assign), *model.nodes(cst.AnnAssign)]
    targets = (target for line in lines for target, _ in assignments(line))
    return frozenset(one.attr.value for one in targets if isinstance(one, cst.Attribute))
