"""What goes wrong between cores.

XLA405 a collective that not all cores reach, XLA410 different graphs, XLA411 a core failed, XLA412
different models, XLA413 hang, XLA420 a core that leaves the loop early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import mismatch_words
from xladoctor.diagnosis.words import at, cores_text, finding, noted
from xladoctor.readings.deaths import BROKEN_POOL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.findings import Finding, Location
    from xladoctor.readings.tables import DivergenceRow, ErrorRow, HangRow
    from xladoctor.results import Compilation

#: What the other cores raise because one has failed; never the reason itself.
_CONSEQUENCES = frozenset({"BrokenBarrierError", "threading.BrokenBarrierError"})

#: Owners of an error that no change of the program removes.
_NOT_THE_PROGRAM = frozenset({"cpu", "simulation"})

_SAME_GRAPHS = "let all cores run the same operations in a step; only the host's work may differ"

_SAME_SHAPES = "give the batches of all cores one shape: pad to a fixed length, drop the last batch"

_SAME_COLLECTIVES = (
    "let all cores reach the same collectives and step ends, in the same order and number"
)

_SAME_STEPS = (
    "give every core the same number of batches: drop_last=True for the sampler and the loader, "
    "and no break, continue or return that only some cores take"
)

_SAME_TAG = "give a rendezvous one tag on all cores, and let all of them come to the same one"

#: Kinds of causes that name no difference to another graph.
_NO_DIFFERENCE = ("unknown", "first-graph", "host-sync-split")

#: What to do about a divergence.
_BY_KIND = {"tags": _SAME_TAG, "collectives": _SAME_COLLECTIVES}

_SAME_WEIGHTS = (
    "let every core apply the same update to its weights; if they are to differ, say so with "
    "xladoctor.cores_differ_on_purpose()"
)


def find(case: Case) -> Iterator[Finding]:
    """Failures first; after a failure different graphs are a consequence and not reported."""
    if case.run is not None:
        failed = list(_failures(case.run))
        yield from failed
        yield from _deadlocks(case.run)
        yield from _weight_divergences(case.run)
        stopped = list(_divergences(case.run))
        yield from stopped
        if not failed and not stopped:
            yield from _different_graphs(case.run)


def _failures(run: RunFacts) -> Iterator[Finding]:
    groups: dict[object, list[ErrorRow]] = {}
    for row in run.errors:
        if run.deaths and row.type in BROKEN_POOL:
            continue  # what the parent says of the one that died
        key = (_said(row), row.frames[:1], row.feeding)
        groups.setdefault(key, []).append(row)
    reasons = [rows for rows in groups.values() if rows[0].type not in _CONSEQUENCES]
    for rows in reasons or groups.values():
        first = rows[0]
        cores = [row.core for row in rows if row.core is not None]
        place = run.place(first.frames)
        who = cores_text(cores, run.cores) if cores else "the program"
        when = f" in step {first.step}" if first.step else ""
        error = _said(first)
        yield finding(
            "XLA411",
            f"{who} got no more batches{when}: the thread that loads them ended with {error}"
            if first.feeding
            else f"{who} failed{when}: {error}",
            _what_to_do(run, first, set(run.cores) - set(cores)),
            at=place,
            count=len(rows),
            cores=cores,
        )


def _what_to_do(run: RunFacts, row: ErrorRow, others: Collection[int]) -> str:
    """What to do about an error; on simulated cores that depends on whose fault it is.

    Args:
        run: The run.
        row: The error.
        others: The cores that did not fail with it.
    """
    if row.feeding:
        return (
            "fix the data set: torch_xla ends the loop as if the data were at an end, and goes on"
        )
    simulated = any(one.manifest.simulated_cores for one in run.runs)
    if simulated and row.verdict and row.whose in _NOT_THE_PROGRAM:
        return row.verdict
    verdict = f" ({row.verdict})" if simulated and row.verdict else ""
    consequence = "; what the other cores report may be a consequence" if others else ""
    return f"fix this first{verdict}{consequence}"


def _said(row: ErrorRow) -> str:
    """Type and message in a line; for one of a DataLoader's workers, what was raised there."""
    lines = row.message.strip().splitlines()
    if len(lines) > 1 and lines[0].startswith("Caught ") and "Traceback" in lines[1]:
        return lines[-1][:200]
    message = lines[0][:200] if lines else ""
    return f"{row.type}{': ' if message else ''}{message}"


def _deadlocks(run: RunFacts) -> Iterator[Finding]:
    """The simulation stopped the run because the cores could never come together."""
    if not run.hangs:
        return
    groups: dict[object, list[HangRow]] = {}
    for row in run.hangs:
        key = (run.place(row.frames), row.state, row.waits_for, _left_after(row))
        groups.setdefault(key, []).append(row)
    # Fewest cores first: who stands elsewhere is the one that the others wait for.
    ordered = sorted(groups.values(), key=len)
    standing = [rows for rows in ordered if _left_after(rows[0]) is None] or ordered
    code, what, suggestion = _kind_of_deadlock(run.hangs)
    stands = [
        noted(place, f"{_who(run, rows)} stood here")
        for rows in standing
        if (place := run.place(rows[0].frames)) is not None
    ]
    batches, fed = _uneven_batches(run) if code == "XLA420" else ("", [])
    yield finding(
        code,
        f"{what}: {batches}{'; '.join(_stand(run, rows) for rows in ordered)}",
        suggestion,
        at=next(iter([*fed, *stands]), None),
        cores=[row.core for row in run.hangs if row.core is not None],
        related=[*fed[1:], *stands],
    )


def _uneven_batches(run: RunFacts) -> tuple[str, list[Location]]:
    """How many batches the cores got, in words, and what feeds them: the line to change first."""
    feeds = [(row, row.fed) for row in run.hangs if row.fed is not None]
    left = [(row, fed) for row, fed in feeds if row.state == "has ended"] or feeds
    if not left:
        return "", []
    counts: dict[int, list[int]] = {}
    for row, fed in feeds:
        if row.core is not None:
            counts.setdefault(fed.batch, []).append(row.core)
    text = ""
    if len(counts) > 1:
        each = (
            f"{cores_text(cores, run.cores)} got {count}" for count, cores in sorted(counts.items())
        )
        text = f"{', '.join(each)} batches; "
    fed = left[0][1]
    places = [
        (run.place(fed.made), "the loader is made here"),
        (run.place(fed.loop), "the loop over it"),
    ]
    return text, [noted(place, note) for place, note in places if place is not None]


def _left_after(row: HangRow) -> int | None:
    """The steps of a core that has returned (-1 if unknown); None if it has not."""
    if row.state != "has ended":
        return None
    return -1 if row.steps is None else row.steps


def _who(run: RunFacts, rows: list[HangRow]) -> str:
    cores = [one.core for one in rows if one.core is not None]
    return cores_text(cores, run.cores) if cores else "a process"


def _stand(run: RunFacts, rows: list[HangRow]) -> str:
    """Who stands where, what for: "core 0 at train.py:40 (rendezvous 'a', waiting for core 1)"."""
    row, who = rows[0], _who(run, rows)
    steps = _left_after(row)
    if steps is not None:
        return f"{who} returned" + (
            f" after {steps} step{'s' * (steps != 1)}" if steps >= 0 else ""
        )
    what = row.waits_for or ("" if row.state == "cores-differ" else row.state)
    if row.waits_for and row.for_cores:
        what = f"{row.waits_for}, waiting for {cores_text(row.for_cores, run.cores)}"
    return f"{who} at {at(run.place(row.frames))}" + (f" ({what})" if what else "")


def _kind_of_deadlock(rows: list[HangRow]) -> tuple[str, str, str]:
    """Code, what happened and what to do."""
    states = {row.state for row in rows}
    if "core-left" in states:
        left = [row.steps for row in rows if row.state == "has ended" and row.steps is not None]
        stay = [row.steps for row in rows if row.state == "core-left" and row.steps is not None]
        # A core whose loader is at its end while others have got more batches is as telling.
        ended = [row.fed.batch for row in rows if row.fed is not None and row.fed.over]
        going = [row.fed.batch for row in rows if row.fed is not None and not row.fed.over]
        fewer = bool(ended and going) and min(ended) < max(going)
        # The others are where all have met before: in the loop that a core has left.
        again = any(row.again for row in rows if row.state == "core-left")
        if fewer or again or (left and stay and min(left) < max(stay)):
            return "XLA420", "a core left the loop early and the others waited for it", _SAME_STEPS
        return "XLA405", "only some cores came to a collective", _SAME_COLLECTIVES
    if "cores-differ" in states:
        return "XLA405", "the cores came to different collectives", _SAME_COLLECTIVES
    return "XLA413", "the run hung", _SAME_COLLECTIVES


def _divergences(run: RunFacts) -> Iterator[Finding]:
    """Cores came with different graphs, or to different collectives."""
    for row in run.divergences:
        if row.what == "shares":
            continue  # each core cuts its own part out of the same tensors, by design
        last = [c for c in run.compilation_rows if c.core == row.core][-1:]
        place = _own(run.place(row.frames)) or run.place(last[0].frames if last else ())
        cause, detail = _own(run.place(row.cause_frames)), ""
        if cause is None and row.kind == "graphs" and not row.differs:
            cause, detail = _seen_in_graphs(run, row)
        cores = row.cores or (() if row.core is None else (row.core,))
        when = f" (step {row.step})" if row.step else ""
        said = row.message.removeprefix("xladoctor: ").partition("\n")[0]
        if row.kind == "graphs":
            said = mismatch_words.sentence(row) or said
            said = said.replace(f"{run.runs[0].manifest.cwd}/", "")
        yield finding(
            "XLA410" if row.kind == "graphs" else "XLA405",
            said + when + detail,
            _SAME_SHAPES if row.what == "shapes" else _BY_KIND.get(row.kind, _SAME_GRAPHS),
            at=cause or place,
            cores=cores,
            related=[noted(place, "the cores meet here")] if place is not None else (),
        )


def _own(place: Location | None) -> Location | None:
    """A place in the user's own code; None for one in an installed package."""
    return None if place is None or "-packages/" in place.filename else place


def _seen_in_graphs(run: RunFacts, row: DivergenceRow) -> tuple[Location | None, str]:
    """What the graphs themselves show: the odd core has compiled one that is like an earlier one.

    Returns:
        The line that made the difference, and what differs, as an addition to the message.
    """
    for item in reversed(run.compilations):
        odd = bool(set(item.cores) & set(row.cores)) and item.step == row.step
        if odd and item.cause.location is not None and item.cause.kind not in _NO_DIFFERENCE:
            return item.cause.location, f": {item.cause.detail}"
    return None, ""


def _weight_divergences(run: RunFacts) -> Iterator[Finding]:
    """The simulation has compared the weights, and they are not the same."""
    for row in run.weight_divergences:
        place, cause = _own(run.place(row.frames)), _own(run.place(row.cause_frames))
        yield finding(
            "XLA412",
            row.message,
            row.suggestion or _SAME_WEIGHTS,
            at=cause or place,
            cores=row.cores,
            related=[noted(place, "seen when this step ended")] if place is not None else (),
        )


def _different_graphs(run: RunFacts) -> Iterator[Finding]:
    """Only what the record itself calls a divergence.

    A graph that is new for some cores only is no proof: reads on one core are harmless, and shapes
    that depend on a core's data are another problem.
    """
    points: dict[object, list[Compilation]] = {}
    for item in run.compilations:
        # Before the first step each core may cut its own share out of the model (FSDP does).
        set_up = (item.step or 0) <= 1 and item.trigger != "step"
        if item.cause.kind == "core-divergence" and not set_up:
            points.setdefault(item.location, []).append(item)
    for items in points.values():
        first = items[0]
        # The cause begins with which cores are alone; that is said here.
        detail = first.cause.detail.partition(" alone: ")[2] or first.cause.detail
        detail = f": {detail}" if detail else ""
        yield finding(
            "XLA410",
            f"{cores_text(first.cores, run.cores)} built a graph that the other cores did not build"
            f"{detail}",
            _SAME_GRAPHS,
            at=first.cause.location or first.location,
            count=sum(len(item.cores) for item in items),
            cores=[core for item in items for core in item.cores],
            related=[noted(first.location, "the graph ends here")] if first.location else (),
        )
