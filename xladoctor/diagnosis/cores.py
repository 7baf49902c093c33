"""What goes wrong between cores.

XLA410 different graphs, XLA411 a core failed, XLA412 different models, XLA413 hang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis.words import at, cores_text, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.findings import Finding
    from xladoctor.readings.tables import ErrorRow, HangRow
    from xladoctor.results import Compilation

#: What the other cores raise because one has failed; never the reason itself.
_CONSEQUENCES = frozenset({"BrokenBarrierError", "threading.BrokenBarrierError"})

_SAME_GRAPHS = "let all cores run the same operations in a step; only the host's work may differ"

_SAME_WEIGHTS = (
    "let every core apply the same update to its weights; if they are to differ, say so with "
    "xladoctor.cores_differ_on_purpose()"
)


def find(case: Case) -> Iterator[Finding]:
    """Failures first; after a failure different graphs are a consequence and not reported."""
    if case.run is not None:
        failed = list(_failures(case.run))
        yield from failed
        yield from _hangs(case.run)
        yield from _partings(case.run)
        stopped = list(_divergences(case.run))
        yield from stopped
        if not failed and not stopped:
            yield from _different_graphs(case.run)


def _failures(run: RunFacts) -> Iterator[Finding]:
    groups: dict[object, list[ErrorRow]] = {}
    for row in run.errors:
        groups.setdefault((row.type, row.message, row.frames[:1]), []).append(row)
    reasons = [rows for rows in groups.values() if rows[0].type not in _CONSEQUENCES]
    for rows in reasons or groups.values():
        first = rows[0]
        cores = [row.core for row in rows if row.core is not None]
        place = run.place(first.frames)
        who = cores_text(cores, run.cores) if cores else "the program"
        when = f" in step {first.step}" if first.step else ""
        message = first.message.strip().partition("\n")[0][:200]
        yield finding(
            "XLA411",
            f"{who} failed{when}: {first.type}{': ' if message else ''}{message}",
            "mend this first; what the other cores report may be a consequence",
            at=place,
            count=len(rows),
            cores=cores,
        )


def _hangs(run: RunFacts) -> Iterator[Finding]:
    if not run.hangs:
        return
    groups: dict[object, list[HangRow]] = {}
    for row in run.hangs:
        groups.setdefault((run.place(row.frames), row.state, row.waits_for), []).append(row)
    # Fewest cores first: who stands elsewhere is the one that the others wait for.
    ordered = sorted(groups.values(), key=len)
    texts = []
    for rows in ordered:
        cores = [row.core for row in rows if row.core is not None]
        who = cores_text(cores, run.cores) if cores else "a process"
        what = rows[0].waits_for or rows[0].state
        texts.append(f"{who} at {at(run.place(rows[0].frames))}" + (f" ({what})" if what else ""))
    place = run.place(ordered[0][0].frames)
    others = [run.place(rows[0].frames) for rows in ordered[1:]]
    yield finding(
        "XLA413",
        f"the run hung: {'; '.join(texts)}",
        "let all cores reach the same collectives and step ends, in the same order and number",
        at=place,
        cores=[row.core for row in run.hangs if row.core is not None],
        related=[place for place in others if place is not None],
    )


def _divergences(run: RunFacts) -> Iterator[Finding]:
    """The simulation stopped the run because a core came with another graph."""
    for row in run.divergences:
        last = [c for c in run.compilation_rows if c.core == row.core][-1:]
        place = run.place(row.frames or (last[0].frames if last else ()))
        cause = run.place(row.cause_frames)
        cores = row.cores or (() if row.core is None else (row.core,))
        when = f" (step {row.step})" if row.step else ""
        yield finding(
            "XLA410",
            row.message.removeprefix("xladoctor: ").partition("\n")[0] + when,
            _SAME_GRAPHS,
            at=cause or place,
            cores=cores,
            related=[place] if cause is not None and place is not None else (),
        )


def _partings(run: RunFacts) -> Iterator[Finding]:
    """The simulation has compared the weights, and they are not the same."""
    for row in run.partings:
        place, cause = run.place(row.frames), run.place(row.cause_frames)
        yield finding(
            "XLA412",
            row.message,
            row.suggestion or _SAME_WEIGHTS,
            at=cause or place,
            cores=row.cores,
            related=[place] if cause is not None and place is not None else (),
        )


def _different_graphs(run: RunFacts) -> Iterator[Finding]:
    """Only what the record itself calls a divergence.

    A graph that is new for some cores only is no proof: reads on one core are harmless, and shapes
    that depend on a core's data are another problem.
    """
    points: dict[object, list[Compilation]] = {}
    for item in run.compilations:
        if item.cause.kind == "core-divergence":
            points.setdefault(item.location, []).append(item)
    for items in points.values():
        first = items[0]
        detail = f": {first.cause.detail}" if first.cause.detail else ""
        yield finding(
            "XLA410",
            f"{cores_text(first.cores, run.cores)} built a graph that the other cores did not build"
            f"{detail}",
            _SAME_GRAPHS,
            at=first.location,
            count=sum(len(item.cores) for item in items),
            cores=[core for item in items for core in item.cores],
            related=[first.cause.location] if first.cause.location else (),
        )
