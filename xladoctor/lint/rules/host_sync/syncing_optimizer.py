"""XLA110: an optimizer that reads its state on the host in every step."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue
from xladoctor.lint.model import LoopKind, OnXla
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._moved_states import moved_counts
from xladoctor.lint.rules._reads import loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem


@rule("XLA110")
def syncing_optimizer(model: FileModel) -> Iterator[Problem]:
    """Find optimizers that were measured to read values on the host, or are made to."""
    if not model.is_xla:
        return
    yield from moved_counts(model)
    loops = [loop for part in (model, *model.linked) for loop in part.loops]
    loop = next((loop for loop in loops if loop.kind is LoopKind.STEP), None)
    if loop is None:
        return
    for call in model.calls():
        row = _measured(model, call)
        if row is None or model.on_xla(call.node) is OnXla.NO:
            continue
        compilations = row.get("compilations")
        also = f" and compiled {compilations} graphs in five steps" if compilations else ""
        count = "1 read" if row["reads"] == 1 else f"{row['reads']} reads"
        yield model.problem(
            call.node,
            f"{row['module']}.{row['name']} reads values on the host in every step: with four "
            f"parameters {count} a step{also}",
            suggestion=_suggestion(row),
            related=[loop_place(model, loop)],
        )


def _measured(model: FileModel, call: CallSite) -> Mapping[str, Any] | None:
    """What was measured of the optimizer that a call makes, if it reads."""
    if call.target is not None or call.last not in _by_name() or call.has_star:
        return None
    for row in _by_name()[call.last]:
        if not (call.name or "").startswith(f"{row['module']}."):
            continue
        given = ((call.keywords.get(key), value) for key, value in row.get("unless", {}).items())
        if not any(node is not None and model.literal(node) is value for node, value in given):
            return row
    return None


def _suggestion(row: Mapping[str, Any]) -> str:
    """The setting without the reads, or torch's optimizers that have none."""
    unless = [f"{key}={value}" for key, value in row.get("unless", {}).items()]
    if "since" in row:
        return f"{row['module']} {row['since']} reads nothing there, measured; {row['version']} did"
    if unless:
        return f"{' and '.join(unless)}: then it reads nothing"
    return "SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax and NAdam of torch read nothing"


@functools.cache
def _by_name() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Class to what was measured of those that are called so."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in catalogue.table("optimizers")["optimizer"]:
        found.setdefault(row["name"], []).append(row)
    return found
