"""What frameworks run on XLA devices by means that torch_xla has lost since."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue
from xladoctor.lint.model import OnXla
from xladoctor.lint.rules._api import version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model import CallSite, FileModel, Problem


def lost_backends(model: FileModel) -> Iterator[Problem]:
    """Find ``idist.Parallel(backend="xla-tpu")`` where the framework cannot reach the cores."""
    rows, told = _rows(), set[str]()
    for call in model.calls(*rows):
        row = rows[str(call.name)]
        if model.target < version(row["gone_in"]) or not _asked(model, call, row):
            continue
        if row.get("once"):
            if row["fails"] in told or not model.is_xla or model.on_xla(call.node) is OnXla.NO:
                continue
            told.add(row["fails"])
        yield model.problem(call.node, row["fails"], suggestion=row["instead"])


def _asked(model: FileModel, call: CallSite, row: Mapping[str, Any]) -> bool:
    """Whether a call asks for the backend of a row: a text that is not written out may be any."""
    given = call.argument(0, "backend")
    return "value" not in row or (given is not None and model.literal(given) == row["value"])


@functools.cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    rows = catalogue.table("frameworks")["backend"]
    return {name: row for row in rows for name in row["called"]}
