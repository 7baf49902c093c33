"""What the reports of several cores tell together: XLA410 different graphs, XLA414 a core lags."""

from __future__ import annotations

import collections
import statistics
from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import cores_text, duration, finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.diagnosis.case import Case
    from xladoctor.diagnosis.pasted import State
    from xladoctor.findings import Finding


def find(case: Case) -> Iterator[Finding]:
    """Compares reports of cores that had taken equally many steps; others say nothing."""
    states = case.pasted.states if case.pasted is not None else ()
    if len(states) < 2 or len({state.steps for state in states}) > 1:
        return
    yield from _different_graphs(states)
    yield from _slow_cores(states)


def _different_graphs(states: Sequence[State]) -> Iterator[Finding]:
    known = [(state, state.new_graphs) for state in states if state.new_graphs is not None]
    counts = collections.Counter(new for _, new in known)
    if len(counts) < 2:
        return
    usual = counts.most_common(1)[0][0]
    others = [(state, new) for state, new in known if new != usual]
    yield finding(
        "XLA410",
        f"{_names([state for state, _ in others], states)} built another number of graphs than the "
        f"rest ({', '.join(str(new) for _, new in others)} against {usual}, of "
        f"{plural(len(known), 'core')})",
        "let all cores run the same operations in a step; the next collective may wait for ever",
        cores=[state.core for state, _ in others if state.core is not None],
        by="report",
    )


def _slow_cores(states: Sequence[State]) -> Iterator[Finding]:
    """In a collective all wait for the last: who waits executes long, who comes late does not."""
    known = [(state, state.execute_seconds) for state in states if state.execute_seconds]
    if len(known) < 2 or any(state.too_early for state, _ in known):
        return
    usual = statistics.median(seconds for _, seconds in known if seconds)
    late = [
        (state, seconds)
        for state, seconds in known
        if seconds is not None and seconds * limits.CORE_TIME_RATIO < usual
    ]
    if not late or usual < limits.WORTH_SECONDS:
        return
    yield finding(
        "XLA414",
        f"{_names([state for state, _ in late], states)} executed for "
        f"{', '.join(duration(seconds) for _, seconds in late)} and the others for "
        f"{duration(usual)} over the same steps: the others wait in collectives for it to come",
        "give this core's host the same work as the others: its input pipeline, logging or saving "
        "holds it up",
        cores=[state.core for state, _ in late if state.core is not None],
        by="report",
    )


def _names(some: Sequence[State], states: Sequence[State]) -> str:
    cores = [state.core for state in some if state.core is not None]
    if len(cores) == len(some):
        return cores_text(cores, [state.core for state in states if state.core is not None])
    return ", ".join(state.source for state in some)
