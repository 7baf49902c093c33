"""What tells a finding of one run apart from the others and knows it again in the next."""

from __future__ import annotations

import collections
import hashlib
from pathlib import PurePath
from typing import TYPE_CHECKING

from xladoctor.findings import stable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.findings import Finding


def of(findings: Sequence[Finding]) -> list[str]:
    """A fingerprint for each finding, in their order; no two are equal.

    A finding keeps its fingerprint when its line moves, when counts and times change, and when the
    findings are ranked in another order: those that are alike are numbered as they stand in the
    source.
    """
    order = sorted(range(len(findings)), key=lambda index: (findings[index].place, index))
    seen: collections.Counter[str] = collections.Counter()
    found = [""] * len(findings)
    for index in order:
        key = _key(findings[index])
        seen[key] += 1
        text = f"{key}\0{seen[key]}"
        found[index] = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:32]
    return found


def _key(finding: Finding) -> str:
    place = finding.locations[0] if finding.locations else None
    path = PurePath(place.filename).as_posix() if place else ""
    # The linter's message names the code; a measured one names times, which change with each run.
    linted = finding.confirmed_by == ("lint",)
    what = stable(finding.message) if linted else (place.function or "") if place else ""
    return f"{finding.code}\0{path}\0{what}"
