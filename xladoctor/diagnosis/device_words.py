"""What a run on a device other than torch_xla's is told, in that device's words (devices.toml)."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from xladoctor import catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.findings import Finding

TORCH_XLA, TORCH_TPU = "torch_xla", "torch_tpu"


def of_member(found: Finding, member: str) -> Finding:
    """A finding in the words of a member of the family."""
    if member == TORCH_XLA:
        return found
    return dataclasses.replace(
        found,
        message=said(found.message, member),
        suggestion=said(found.suggestion, member),
        related=tuple(
            dataclasses.replace(place, note=said(place.note, member)) if place.note else place
            for place in found.related
        ),
    )


def said(text: str, member: str) -> str:
    """What is said of torch_xla's runs, in the words of another member."""
    for ours, theirs in _words(member):
        text = text.replace(ours, theirs)
    return text


@functools.cache
def _words(member: str) -> Sequence[tuple[str, str]]:
    if member == TORCH_XLA:
        return ()
    [row] = [row for row in catalogue.table("devices")["member"] if row["name"] == member]
    pairs = (*row.get("run_words", ()), *row["words"])
    return [(ours, theirs) for ours, theirs in pairs]
