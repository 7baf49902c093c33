"""What PT_XLA_DEBUG says of single lines: XLA210, XLA101 and XLA501 with their places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import host_sync
from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.fallback_advice import advice
from xladoctor.diagnosis.pasted import SCALAR_READ
from xladoctor.diagnosis.words import finding, plural
from xladoctor.readings.places import location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding, Location
    from xladoctor.readings.tables import DebugBlock, UnloweredSite

_COMPARE = (
    "compare what the line is given in two of these steps: shapes (last batch, variable length), "
    "Python numbers, branches on data"
)


def find(case: Case) -> Iterator[Finding]:
    """One finding a line."""
    if case.pasted is None:
        return
    yield from recompiled(case.pasted.debug)
    yield from _unexpected(case.pasted.debug)
    known = {location(block.frames) for block in case.pasted.debug if block.reads_value}
    known.add(host_sync.told(case.pasted))
    yield from _unlowered(case.pasted.unlowered, known)


def recompiled(blocks: Sequence[DebugBlock]) -> Iterator[Finding]:
    """A line whose graph is another one each time.

    Known by what is executed between: once a line has executed as often as warm-up takes, new
    graphs of it are late. Without execution blocks (PT_XLA_DEBUG_LEVEL=1) only the number is known.
    """
    executions_shown = any(block.kind == "execution" for block in blocks)
    executed: dict[Location, int] = {}
    graphs: dict[Location, list[str]] = {}
    for block in blocks:
        place = location(block.frames)
        if place is None or block.graph is None:
            continue
        if block.kind == "execution":
            executed[place] = executed.get(place, 0) + 1
        elif block.kind == "compilation":
            known = graphs.setdefault(place, [])
            warm = executed.get(place, 0) >= limits.WARMUP_EXECUTIONS or not executions_shown
            if warm and block.graph not in known:
                known.append(block.graph)
    for place, hashes in graphs.items():
        fewest = 2 if executions_shown else limits.FEWEST_SAMPLES
        if len(hashes) >= fewest:
            when = " after warm-up" if executions_shown else ""
            yield finding(
                "XLA210",
                f"{plural(len(hashes), 'new graph')} compiled at this line{when} (PT_XLA_DEBUG)",
                _COMPARE,
                at=place,
                count=len(hashes),
                by="report",
            )


def _unexpected(blocks: Sequence[DebugBlock]) -> Iterator[Finding]:
    """A graph was run inside a function that is to be one graph."""
    lines: dict[Location | None, int] = {}
    for block in blocks:
        if block.kind == "unexpected-execution":
            place = location(block.frames)
            lines[place] = lines.get(place, 0) + 1
    for place, count in lines.items():
        yield finding(
            "XLA101",
            "a device value was read inside a function that is to be one graph, and ends it "
            "(PT_XLA_DEBUG: unexpected execution)",
            "move the read out of the compiled function: return the tensor and read it afterwards",
            at=place,
            count=count,
            by="report",
        )


def _unlowered(
    sites: Sequence[UnloweredSite], known: Collection[Location | None]
) -> Iterator[Finding]:
    """Lines of the frame summary, without those of which it is known already that they read."""
    counts: dict[tuple[str | None, Location | None], int] = {}
    for site in sites:
        key = (site.operation, location(site.frames))
        counts[key] = counts.get(key, 0) + site.count
    for (operation, place), count in counts.items():
        if operation == SCALAR_READ or operation is None:
            if count >= limits.FEWEST_SAMPLES and place not in known:
                what = (
                    "a single value was read from the device"
                    if operation
                    else "a value was read, or an operation ran on the CPU,"
                )
                yield finding(
                    "XLA101",
                    f"{what} {plural(count, 'time')} at this line (PT_XLA_DEBUG)",
                    "keep what is read a tensor and read it every 10 to 30 steps; "
                    "metrics_report() names operations that run on the CPU (aten:: counters)",
                    at=place,
                    count=count,
                    by="report",
                )
            continue
        yield finding(
            "XLA501",
            f"{operation} ran on the CPU {plural(count, 'time')} at this line (PT_XLA_DEBUG)",
            advice(operation),
            at=place,
            count=count,
            by="report",
        )
