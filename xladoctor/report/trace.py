"""The timeline in Chrome's trace format, which Perfetto (ui.perfetto.dev) opens.

Facts used (Trace Event Format of the Chromium project; Perfetto's importer of it): times are
microseconds; complete events (``X``) of one thread nest by time; ``M`` events name what is shown;
instant events (``i``) have a scope ``s``. Each core is a process of the trace, so that Perfetto
shows one track group a core, in the order of ``process_sort_index``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from xladoctor import __version__, visible
from xladoctor.errors import UsageError
from xladoctor.report import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.results import Report
    from xladoctor.timeline import Event, Stretch

#: The one thread of a core: its steps, in them their parts, in those the lines.
_THREAD = 1

_ORDER = (
    "A step's parts are drawn one after the other, in a fixed order: how long each took is "
    "measured, when inside the step is not. Compilations, reads and fallbacks stand inside the "
    "part of the time that they took."
)
_BLOCKS = (
    "Of a long run several steps share one block ('steps 1001-1010'): its parts are sums, and "
    "'fastest' and 'slowest' are seconds of one step."
)


def render(report: Report) -> str:
    """The trace as one JSON object.

    Raises:
        UsageError: The report is of pasted text, which has no times.
    """
    timeline = report.timeline
    if timeline is None or not (timeline.stretches or timeline.stops):
        raise UsageError(
            "--trace needs a run directory with steps: no time of a step was recorded here"
        )
    events: list[dict[str, Any]] = []
    for core in timeline.cores:
        events += _names(core)
    for stretch in timeline.stretches:
        events += _stretch(stretch, report)
    for stop in timeline.stops:
        event = {
            "name": f"stands still: {stop.text}", "ph": "i", "ts": _micros(stop.at), "tid": _THREAD,
            "pid": _process(stop.core or 0), "s": "p", "cat": "stop",
            "args": {"line": words.place(stop.location)},
        }  # fmt: skip
        events.append(event)
    blocks = any(stretch.steps > 1 for stretch in timeline.stretches)
    about = {
        **report.about,
        "Order": _ORDER,
        **({"Blocks": _BLOCKS} if blocks else {}),
        "Made by": f"xladoctor {__version__}",
    }
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return visible.in_json(text) + "\n"


def _process(core: int) -> int:
    return core + 1  # 0 is the idle process of a kernel trace


def _micros(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _names(core: int) -> Iterator[dict[str, Any]]:
    base = {"ph": "M", "pid": _process(core), "tid": _THREAD}
    yield {**base, "name": "process_name", "args": {"name": f"core {core}"}}
    yield {**base, "name": "process_sort_index", "args": {"sort_index": core}}
    yield {**base, "name": "thread_name", "args": {"name": "steps"}}


def _stretch(stretch: Stretch, report: Report) -> Iterator[dict[str, Any]]:
    facts: dict[str, Any] = {
        "steps": stretch.steps,
        "graphs run": stretch.graphs,
        "new graphs": stretch.count("compile"),
        "host syncs": stretch.count("host_sync"),
        "CPU fallbacks": stretch.count("fallback"),
    }
    if stretch.steps > 1:
        facts["fastest (s)"], facts["slowest (s)"] = stretch.fastest, stretch.slowest
    kind = "between" if not stretch.steps else "step" if stretch.steps == 1 else "block"
    yield _slice(stretch.core, stretch.name, kind, stretch.start, stretch.seconds, facts)
    at, end = stretch.start, stretch.start + stretch.seconds
    for part, name in words.PARTS.items():
        events = [event for event in stretch.events if event.part == part]
        seconds = min(max(0.0, stretch.parts.get(part, 0.0)), end - at)
        if seconds <= 0 and not events:
            continue
        unmeasured = [_said(event) for event in events if event.seconds is None]
        label = "compiled by another core" if part == "compile" else "not measured by itself"
        counted = {label: unmeasured} if unmeasured else {}
        yield _slice(stretch.core, name, part, at, seconds, counted)
        inner, stop = at, at + seconds
        for event in events:
            if event.seconds is None:
                continue
            took = min(event.seconds, stop - inner)
            yield _slice(stretch.core, _said(event), part, inner, took, _facts(event, report))
            inner += took
        at = stop


def _slice(
    core: int, name: str, category: str, start: float, seconds: float, facts: dict[str, Any]
) -> dict[str, Any]:
    # Both ends are rounded, not the duration: so what nests and what follows still does.
    begin = _micros(start)
    event = {
        "name": name, "cat": category, "ph": "X", "ts": begin,
        "dur": max(0.0, round(_micros(start + seconds) - begin, 3)),
        "pid": _process(core), "tid": _THREAD,
    }  # fmt: skip
    shown = {label: value for label, value in facts.items() if value is not None}
    return {**event, "args": shown} if shown else event


def _said(event: Event) -> str:
    """``train.py:52 item``, ``train.py:40 graph 7``."""
    what = event.what if event.graph is None else f"graph {event.graph}"
    times = f" x{event.count}" if event.count > 1 else ""
    return f"{words.place(event.location)} {what}{times}"


def _facts(event: Event, report: Report) -> dict[str, Any]:
    facts: dict[str, Any] = {"line": words.place(event.location), "count": event.count}
    if event.location is not None and event.location.function:
        facts["function"] = event.location.function
    if event.graph is not None:
        compilation = report.compilations[event.graph - 1]
        facts["why it was new"] = words.cause(compilation)
        facts["ended by"] = words.ended_by(compilation)
        facts["after warm-up"] = compilation.after_warmup
    return facts
