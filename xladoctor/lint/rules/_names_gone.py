"""Names and arguments that Lightning 2 has no more, wherever a program for XLA devices has them."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.rules._exact import around
from xladoctor.lint.rules._lightning import TRAINERS
from xladoctor.lint.rules._lightning_gone import MODULE, is_own
from xladoctor.lint.rules._sources import is_made_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model import CallSite, FileModel, Problem


@functools.cache
def _names() -> Mapping[str, str]:
    """Name to what to write in its place."""
    last = {
        f"lightning.pytorch.{name}": f"what came after it: {row['release']} is the last that had it"
        for row in catalogue.table("lightning")["last"]
        for name in row["names"]
    }
    rows = catalogue.table("frameworks")["gone"]
    return last | {row["name"]: row["instead"] for row in rows}


@functools.cache
def _arguments() -> Mapping[str, Mapping[str, str]]:
    """Class to its arguments that are gone, to the same."""
    found: dict[str, dict[str, str]] = {}
    for row in catalogue.table("frameworks")["argument"]:
        found.setdefault(row["of"], {}).update(dict.fromkeys(row["names"], row["instead"]))
    return found


def _which(dotted: str) -> str | None:
    """The name of the table that a dotted name is, or stands in."""
    if not dotted.startswith("lightning.pytorch."):
        return None
    parts = dotted.split(".")
    each = (".".join(parts[:count]) for count in range(len(parts), 2, -1))
    return next((one for one in each if one in _names()), None)


def names_gone(model: FileModel) -> Iterator[Problem]:
    """``from pytorch_lightning.metrics import Accuracy``, ``pl.metrics.Accuracy()``, for good.

    An import is told once, for it fails before its names are used.
    """
    imported: set[str] = set()
    for line in model.tree.imports:
        if any(isinstance(node, cst.Try) for node in around(model, line)):
            continue
        for node, dotted in _imported(model, line):
            name = _which(dotted)
            if name is not None and name not in imported:
                imported.add(name)
                yield _no_more(model, node, name, "the import fails")
    told: dict[str, set[int]] = collections.defaultdict(set)
    for dotted, uses in model.named.items():
        name = _which(dotted)
        if name is None or name in imported:
            continue
        for use in uses:
            row = model.row(use)
            if row in told[name] or any(isinstance(x, cst.Try) for x in around(model, use)):
                continue  # of ``pl.metrics.Accuracy`` not ``pl.metrics`` as well
            told[name].add(row)
            yield _no_more(model, use, name, "this raises AttributeError")


def _no_more(model: FileModel, node: cst.CSTNode, name: str, what: str) -> Problem:
    told = name.removeprefix("lightning.pytorch.")
    return model.problem(
        node, f"Lightning 2 has no {told}: {what}", suggestion=f"use {_names()[name]}"
    )


def _imported(
    model: FileModel, line: cst.Import | cst.ImportFrom
) -> Iterator[tuple[cst.CSTNode, str]]:
    """What an import names, as Lightning 2 spells it."""
    if isinstance(line, cst.ImportFrom):
        if line.module is None or line.relative:
            return
        module = model.tree.text(line.module).strip()
        if isinstance(line.names, cst.ImportStar):
            yield line, _today(module)
            return
        for alias in line.names:
            yield alias, _today(f"{module}.{model.tree.text(alias.name).strip()}")
    else:
        for alias in line.names:
            yield alias, _today(model.tree.text(alias.name).strip())


def _today(dotted: str) -> str:
    first, _, rest = dotted.partition(".")
    return f"lightning.pytorch.{rest}" if first == "pytorch_lightning" and rest else dotted


def of_classes(model: FileModel) -> Iterator[Problem]:
    """``ModelCheckpoint(filepath=...)``."""
    for made, arguments in _arguments().items():
        last = made.rpartition(".")[2]
        for call in model.calls():
            if call.last != last or not _is_of(model, call, made):
                continue
            for name in call.keywords.keys() & arguments.keys():
                yield model.problem(
                    call.keywords[name],
                    f"Lightning 2 has no {name} here: {last} raises TypeError",
                    suggestion=f"write {arguments[name]}",
                )


def _is_of(model: FileModel, call: CallSite, wanted: str) -> bool:
    """Whether a call makes an object of a class, or calls that method of one."""
    if (call.name or "").startswith("lightning.pytorch."):
        return True
    of, method = wanted.rpartition(".")[::2]
    if call.receiver is None or method != call.method:
        return False
    if of == MODULE and isinstance(call.node.func, cst.Attribute):
        return is_own(model, call.node.func)
    return of in TRAINERS and is_made_in(model, call.receiver, TRAINERS)
