"""What the hosts of a run differ in and should not: versions, and their machines' clocks."""

from __future__ import annotations

import collections
import statistics
from typing import TYPE_CHECKING

from xladoctor.store import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.readings import tables

#: Seconds by which the clocks of hosts may differ without a word.
_CLOCKS_APART = 60.0

#: Versions and clocks that are named one by one.
_FEW = 4


def versions(runs: Sequence[tables.Run]) -> list[str]:
    """A sentence for each package of which the hosts have different versions."""
    notes = []
    for name in ("xladoctor", "torch", "torch_xla", "python"):
        by_version: dict[str, list[str]] = collections.defaultdict(list)
        for run in runs:
            found = (
                {run.manifest.xladoctor}
                if name == "xladoctor"
                else {getattr(row, name) for row in run.processes}
            )
            for version in found - {None}:
                by_version[str(version)].append(run.manifest.host or "?")
        if len(by_version) > 1:
            usual = max(by_version, key=lambda version: len(by_version[version]))
            others = [
                f"{parts.labels(hosts)} {'have' if len(hosts) > 1 else 'has'} {version}"
                for version, hosts in sorted(by_version.items())
                if version != usual
            ]
            others[_FEW:] = [f"{len(others) - _FEW} more have yet others"] * (len(others) > _FEW)
            notes.append(f"versions of {name} are mixed: {', '.join(others)}, the others {usual}")
    return notes


def clocks(runs: Sequence[tables.Run]) -> list[str]:
    """Which hosts' clocks are off, by when they say that the same steps ended."""
    if len(runs) < 2:
        return []
    ends = [_step_ends(run) for run in runs]
    common = set.intersection(*(set(one) for one in ends))
    if not common:
        return []
    step = max(common)
    usual = statistics.median(one[step] for one in ends)
    off = [
        (run.manifest.host or "?", one[step] - usual)
        for run, one in zip(runs, ends, strict=True)
        if abs(one[step] - usual) > _CLOCKS_APART
    ]
    if not off:
        return []
    named = ", ".join(
        f"that of host {label} by {_apart(abs(seconds))} {'ahead' if seconds > 0 else 'behind'}"
        for label, seconds in off[:_FEW]
    )
    more = f" and {len(off) - _FEW} more" if len(off) > _FEW else ""
    return [f"clocks differ: {named}{more}; times are aligned by steps, not by clocks"]


def _step_ends(run: tables.Run) -> dict[int, float]:
    """When steps ended, in unix seconds of the host."""
    zero = wall(run)
    if zero is None:
        return {}
    return {row.last: row.t1 + zero for row in run.steps if row.last is not None}


def _apart(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def wall(run: tables.Run) -> float | None:
    """What a machine's clock is behind unix time."""
    known = [
        row.time - row.t for row in run.processes if row.time is not None and row.t is not None
    ]
    return min(known, default=None)
