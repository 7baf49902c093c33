"""Names and arguments that a framework has no more, wherever a program for XLA devices has them."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import OnXla
from xladoctor.lint.pins import called
from xladoctor.lint.rules._distinct import is_distinct
from xladoctor.lint.rules._lightning import TRAINERS
from xladoctor.lint.rules._lightning_gone import MODULE, is_own
from xladoctor.lint.rules._sources import is_made_in
from xladoctor.lint.rules._starred import lost_with_stars
from xladoctor.lint.rules._tolerated import tolerated

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
    lost = {
        f"{row['of']}.{name}": _after(row, name)
        for row in catalogue.table("huggingface")["lost"]
        for name in row["names"]
    }
    rows = catalogue.table("frameworks")["gone"]
    return last | lost | {name: row["instead"] for row in rows for name in row["names"]}


def _after(row: Mapping[str, Any], name: str) -> str:
    """What to write in the place of a name of a row of ``huggingface.toml``."""
    if "now" in row:
        return f"{row['now']}.{name.rpartition('.')[2]}"
    if "instead" in row:
        return str(row["instead"])
    return f"what came after it, or do without: {row['of']} {row['release']} still had it"


@functools.cache
def _arguments() -> Mapping[str, Mapping[str, str]]:
    """Class to its arguments that are gone, to the same."""
    found: dict[str, dict[str, str]] = {}
    for row in catalogue.table("frameworks")["argument"]:
        found.setdefault(row["of"], {}).update(dict.fromkeys(row["names"], row["instead"]))
    return found


@functools.cache
def _instead(dotted: str) -> str | None:
    """What to write in the place of exactly this name; None if it is not gone."""
    of, _, name = dotted.rpartition(".")
    moved = (
        row["instead"]
        for row in catalogue.table("frameworks")["moved"]
        if row["of"] == of
        and name not in row["kept"]
        and (
            name.startswith(tuple(row.get("begins", ())))
            or name.endswith(tuple(row.get("ends", ())))
        )
    )
    return _names().get(dotted) or next(moved, None)


def is_own_copy(model: FileModel, framework: str) -> bool:
    """Whether a program brings a framework of its own: it imports a module that no release had."""
    rows = catalogue.table("frameworks")
    known = {name for row in rows["modules"] if row["of"] == framework for name in row["names"]}
    begins = tuple(
        x for row in rows["moved"] if row["of"] == framework for x in row.get("begins", ())
    )
    for line in model.tree.imports:
        if isinstance(line, cst.ImportFrom) and line.module is not None and not line.relative:
            package, _, module = model.tree.text(line.module).strip().partition(".")
            first = module.partition(".")[0]
            unknown = first and first not in known and not first.startswith(begins)
            if package == framework and unknown:
                return True
    return False


def _which(dotted: str, framework: str) -> str | None:
    """The name that is gone which a dotted name is, or stands in."""
    if not dotted.startswith(f"{framework}."):
        return None
    parts = dotted.split(".")
    within = framework.count(".") + 1
    each = (".".join(parts[:count]) for count in range(len(parts), within, -1))
    return next((one for one in each if _instead(one) is not None), None)


def _package(framework: str) -> str:
    """``lightning`` of ``lightning.pytorch``, where its names stand."""
    return framework.partition(".")[0]


def names_gone(model: FileModel, framework: str) -> Iterator[Problem]:
    """``from pytorch_lightning.metrics import Accuracy``, ``pl.metrics.Accuracy()``, for good.

    An import is told once, for it fails before its names are used. Nothing is where the project
    pins a release that has them.
    """
    if model.keeps_old(_package(framework)):
        return
    imported: set[str] = set()
    for line in model.tree.imports:
        if tolerated(model, line) or model.on_xla(line) is OnXla.NO:
            continue
        for node, dotted in _imported(model, line):
            name = _which(dotted, framework)
            if name is not None and name not in imported:
                imported.add(name)
                yield _no_more(model, node, name, framework, "the import fails")
    told: dict[str, set[int]] = collections.defaultdict(set)
    for dotted, uses in model.named.items():
        name = _which(dotted, framework)
        if name is None or name in imported:
            continue
        for use in uses:
            row = model.row(use)
            elsewhere = tolerated(model, use) or model.on_xla(use) is OnXla.NO
            if row in told[name] or elsewhere:
                continue  # of ``pl.metrics.Accuracy`` not ``pl.metrics`` as well
            told[name].add(row)
            yield _no_more(model, use, name, framework, "this raises AttributeError")
    for star, module, lost in lost_with_stars(model, framework, _is_lost):
        told_names = ", ".join(node.value for node in lost)
        yield model.problem(
            star,
            f"{module} of {called(_package(framework))} no longer brings {told_names}: this raises "
            "NameError",
            suggestion=f"import what is used by its name, {lost[0].value} from what has it today",
            related=[model.place(node, "used here") for node in lost],
        )


def _is_lost(dotted: str) -> bool:
    """Whether a module of a framework brings a name no more, or asks something else with it."""
    package = dotted.partition(".")[0]
    module, _, last = dotted.rpartition(".")
    asked = (row for row in catalogue.table("frameworks")["question"] if row["package"] == package)
    return _instead(dotted) is not None or any(
        row["name"] == last and module not in row["still_in"] for row in asked
    )


def _no_more(model: FileModel, node: cst.CSTNode, name: str, framework: str, what: str) -> Problem:
    told = name.removeprefix(f"{framework}.")
    return model.problem(
        node,
        f"{called(_package(framework))} has no {told}: {what}",
        suggestion=f"use {_instead(name)}",
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
    """``ModelCheckpoint(filepath=...)``, ``trainer.fit(net, train_dataloader=loader)``."""
    for made, arguments in _arguments().items():
        last = made.rpartition(".")[2]
        for call in model.calls():
            gone = call.keywords.keys() & arguments.keys() if call.last == last else ()
            asked, known = call.receiver, bool(gone) and _is_of(model, call, made)
            for name in sorted(gone):
                if not known and (asked is None or not is_distinct(model, made, name, asked)):
                    continue
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
