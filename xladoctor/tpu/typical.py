"""Which graphs make up the typical step of a run, how often each runs, and what the host does.

A run says which line ended how many graphs, and which graphs were new there; not which graph each
launch ran. After warm-up a program point runs the graph that was the last to be new in its first
three executions (the first builds optimizer state and gradients, the next ones settle); graphs that
are new later are of other shapes or branches, and are not of the typical step.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.readings.tables import CompilationRow, Frame, LaunchRow, Run, StepRow

#: Executions of a program point, and steps, that are warm-up (as in ``diagnosis.thresholds``).
WARMUP = 3

#: What ends a graph at which torch_xla donates the buffers of updated tensors.
_DONATING = frozenset({"step", "sync", "loader"})


@dataclasses.dataclass(frozen=True, slots=True)
class Used:
    """A graph of a run.

    Attributes:
        process: Folder of the process.
        hlo: Its name there.
        graph: Its hash, None if it has none.
        frames: Where it ends.
        trigger: What ends it.
        per_step: How often it runs in the typical step; 0 if it is not of it.
        donates: Whether updated tensors take the memory of the old ones.
    """

    process: str
    hlo: str
    graph: str | None
    frames: tuple[Frame, ...]
    trigger: str | None
    per_step: float
    donates: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """What the host does in a typical step, in seconds of wall time of one core.

    Attributes:
        tracing: Python and tracing; None if it was not measured.
        input_wait: Waiting for the next batch; None if it was not measured.
        sharing: How many cores trace in threads of one Python, which take turns: one alone takes at
            least its time by their number.
    """

    tracing: float | None
    input_wait: float | None
    sharing: int

    @property
    def working(self) -> float | None:
        """Both together."""
        return None if self.tracing is None else self.tracing + (self.input_wait or 0.0)

    def alone(self, seconds: float | None) -> float | None:
        """What one core alone would take of it, at least."""
        return None if seconds is None else seconds / self.sharing


def used(run: Run) -> list[Used]:
    """The graphs of a run that were kept: those of the typical step first, the most frequent first.

    One core stands for all: the one that took the most steps.
    """
    rows = [row for row in run.compilations if not row.modelled and row.trigger != "eager"]
    kept = {row.graph: (row.process, row.hlo) for row in rows if row.hlo and row.graph}
    frequency = _frequency(run)
    settled = _settled(rows)
    found: dict[tuple[str, str], Used] = {}
    for row in rows:
        at = (row.process, row.hlo) if row.hlo else kept.get(row.graph) if row.graph else None
        if at is None or at[1] is None:
            continue
        point = (row.frames, row.trigger)
        pieces = settled.get(point, {})
        mine = pieces.get(row.piece or 1) == _identity(row)
        per_step = frequency.get(point, 0.0) / max(1, len(pieces)) if mine else 0.0
        key = (at[0], at[1])
        before = found.get(key)
        if before is None or before.per_step < per_step:
            found[key] = Used(
                at[0], at[1], row.graph, row.frames, row.trigger, per_step,
                row.trigger in _DONATING,
            )  # fmt: skip
    return sorted(found.values(), key=lambda one: -one.per_step)


def _identity(row: CompilationRow) -> object:
    return row.graph or (row.process, row.hlo)


def _settled(
    rows: Iterable[CompilationRow],
) -> dict[tuple[tuple[Frame, ...], str | None], dict[int, object]]:
    """By program point and trigger: the graph of each piece that it settles on."""
    chosen: dict[tuple[tuple[Frame, ...], str | None], dict[int, CompilationRow]] = {}
    for row in rows:
        pieces = chosen.setdefault((row.frames, row.trigger), {})
        before = pieces.get(row.piece or 1)
        early = (row.executions or 0) < WARMUP
        if before is None or (early and (row.executions or 0) >= (before.executions or 0)):
            pieces[row.piece or 1] = row
    return {
        point: {piece: _identity(row) for piece, row in pieces.items()}
        for point, pieces in chosen.items()
    }


def _busiest(run: Run) -> tuple[str, int] | None:
    """Process and number of the core that took the most steps."""
    cores = [row for row in run.cores if row.steps]
    if not cores:
        return None
    best = max(cores, key=lambda row: row.steps or 0)
    return best.process, best.core


def _frequency(run: Run) -> dict[tuple[tuple[Frame, ...], str | None], float]:
    """Launches per step after warm-up, by program point and trigger, of one core."""
    core = _busiest(run)
    if core is None:
        return {}
    stretches = {
        (row.first, row.last)
        for row in _typical(row for row in run.steps if (row.process, row.core) == core)
    }
    launches = [row for row in run.launches if (row.process, row.core) == core]
    found: dict[tuple[tuple[Frame, ...], str | None], list[float]] = {}
    for row in launches:
        if (row.first, row.last) in stretches:
            found.setdefault((row.frames, row.trigger), []).append(_each(row))
    total = max(1, len(stretches))
    # The median over all typical steps: a line that runs in few of them is not of the step.
    return {
        point: statistics.median([*counts, *[0.0] * max(0, total - len(counts))])
        for point, counts in found.items()
    }


def _each(row: LaunchRow) -> float:
    assert row.first is not None
    assert row.last is not None
    return row.count / (row.last - row.first + 1)


def _typical(rows: Iterable[StepRow]) -> list[StepRow]:
    """Stretches of steps after warm-up in which nothing was compiled; all steps if none is left."""
    steps = [row for row in rows if row.first is not None and row.last is not None]
    late = [row for row in steps if (row.first or 0) > WARMUP] or steps
    return [row for row in late if not row.parts.get("compile")] or late


def host(run: Run) -> Host:
    """What the host does in the step that takes it a middling time: tracing, and input."""
    found = []
    for row in _typical(run.steps):
        tracing, waiting = row.parts.get("trace"), row.parts.get("input_wait")
        if tracing is not None:
            count = (row.last or 0) - (row.first or 0) + 1
            both = (tracing + (waiting or 0.0)) / count
            found.append((both, tracing / count, None if waiting is None else waiting / count))
    sharing = max(1, run.manifest.simulated_cores or 1)
    if not found:
        return Host(None, None, sharing)
    found.sort(key=lambda one: one[0])
    _, tracing, waiting = found[(len(found) - 1) // 2]
    return Host(tracing, waiting, sharing)
