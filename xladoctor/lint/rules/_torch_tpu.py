"""What ties a program to torch_xla: what the rules of TorchTPU readiness (XLA85) share."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.rewrites import moving
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from xladoctor.lint.model import FileModel, Problem


@dataclasses.dataclass(frozen=True, slots=True)
class Tie:
    """A row of ``tables/torch_tpu.toml``; see there."""

    code: str
    names: tuple[str, ...]
    tie: str
    instead: str
    write: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@functools.cache
def _by_name() -> dict[str, Tie]:
    rows = catalogue.table("torch_tpu")["use"]
    ties = (Tie(**{**row, "names": tuple(row["names"])}) for row in rows)
    return {name: tie for tie in ties for name in tie.names}


@functools.cache
def tie_of(dotted: str) -> Tie | None:
    """The row that a full name falls under: its own, or the nearest module's."""
    exact = _by_name().get(dotted)
    if exact is not None:
        return exact
    while "." in dotted:
        below = _by_name().get(f"{dotted}.*")
        if below is not None:
            return below
        dotted = dotted.rpartition(".")[0]
    return _by_name().get(f"{dotted}.*")


def is_variable(name: str) -> bool:
    """Whether an environment variable is read by torch_xla and unknown to TorchTPU."""
    patterns = (item for row in catalogue.table("torch_tpu")["variable"] for item in row["names"])
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        for pattern in patterns
    )


def uses(model: FileModel) -> Iterator[tuple[cst.BaseExpression, str]]:
    """Expressions that name something of torch_xla: node and full name; each chain once.

    Where the code is ready for torch_xla to be missing (try, a test of the version), nothing binds
    the program to it.
    """
    named: Iterable[cst.Attribute | cst.Name] = model.nodes(cst.Attribute, cst.Name)
    for node in named:
        dotted = model.name(node)
        if dotted is None or not _is_ours(dotted) or _is_part(model, node):
            continue
        if not tolerated(model, node):
            yield node, dotted


def problems(model: FileModel, code: str) -> Iterator[Problem]:
    """What ties a file to torch_xla in the way of one rule."""
    for node, dotted in uses(model):
        tie = tie_of(dotted)
        if tie is not None and tie.code == code:
            written = model.tree.text(node).strip()
            fix = moving.successor(model, node, dotted, tie.write)
            yield model.problem(node, f"{written} {tie.tie}", suggestion=tie.instead, fix=fix)


def _is_ours(dotted: str) -> bool:
    return dotted.startswith("torch_xla.")


def _is_part(model: FileModel, node: cst.Attribute | cst.Name) -> bool:
    """It stands in an import, names nothing by itself, or a longer name goes on from it."""
    parent = model.parent(node)
    if isinstance(parent, cst.Attribute):
        if parent.attr is node:
            return True
        longer = model.name(parent)
        return longer is not None and _is_ours(longer)
    if isinstance(parent, cst.Arg):
        return parent.keyword is node
    if isinstance(parent, cst.AssignTarget | cst.Param | cst.FunctionDef | cst.ClassDef):
        return getattr(parent, "default", None) is not node
    return isinstance(parent, cst.ImportAlias | cst.AsName | cst.ImportFrom | cst.Import)
