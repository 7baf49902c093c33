"""Metrics that torch_xla records under another name today."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue
from xladoctor.lint.rules._api import version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model import FileModel, Problem

_ASKS = "torch_xla.debug.metrics.metric_data"


@functools.cache
def _renamed() -> Mapping[str, Mapping[str, Any]]:
    return {row["old"]: row for row in catalogue.table("api")["metric"]}


def renamed_metrics(model: FileModel) -> Iterator[Problem]:
    """``met.metric_data("TransferFromServerTime")[0]``: None has no first element.

    Not in a program that knows the new name too.
    """
    for call in model.calls(_ASKS):
        asked = call.argument(0, "name")
        row = _renamed().get(str(model.literal(asked))) if asked is not None else None
        if asked is None or row is None or row["new"] in model.text:
            continue
        if model.target < version(row["renamed_in"]):
            continue
        written = f'"{row["new"]}"'
        yield model.problem(
            asked,
            f"torch_xla {row['renamed_in']} renamed the metric {row['old']}: metric_data gives "
            "None",
            suggestion=f"write {written}",
            fix=model.fix(f"Write {written}", model.replace(asked, written), safe=True),
        )
