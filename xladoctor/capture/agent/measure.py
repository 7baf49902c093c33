"""Looks at torch_xla's own counters before and after a graph ends: what was compiled, which graph.

The meter sits innermost (MEASURE), so on simulated cores it runs inside the launch lock and the
difference belongs to one core's launch alone.

How long a launch waits for the device is wall time less the CPU time of its thread: torch_xla's
DeviceLockWait says so only of the launch before it, and nothing of ``sync(wait=True)`` or of a
device that computes before the launch returns, as the CPU often does (torch_xla 2.9.0: 6 of 7 ms).

The hash of a graph comes from torch_xla's debug records (``debug_records``).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from . import xla
from .debug_records import DebugRecords
from .points import FALLBACK, LAUNCH, MEASURE, READ, STEP, Call, Points

if TYPE_CHECKING:
    from collections.abc import Callable

    from .hlo import Dumps


class Meter:
    """Puts into ``call.facts`` what a launch did.

    ``compiled`` (int), ``compile_seconds`` (float), ``executed`` (graphs that ran, int) and
    ``execute_seconds`` (float: for how long the thread neither worked nor waited for a compilation,
    because the device was at work; not on simulated cores, where the simulation knows), and
    ``graphs``: one record for each of them with ``graph``, ``inputs``, ``outputs`` (None when
    not known), ``compiled`` (bool), ``seconds`` (None when not compiled here), ``took`` (how long
    its compilation took whichever core did it, None when not known) and ``hlo`` (the name under
    which the graph itself was kept, or None).

    Args:
        simulated: Whether several cores share this process.
        note: Takes a sentence about what cannot be measured.
        dumps: Keeps the graphs that were compiled; None to keep none.
    """

    def __init__(
        self, *, simulated: bool, note: Callable[[str], None], dumps: Dumps | None = None
    ) -> None:
        self._simulated = simulated
        self._dumps = dumps
        self._note = note
        self._known = 0  # compilations that belong to a launch or have been told
        self._took: dict[str, float] = {}  # graph -> seconds of its compilation
        self._thread = threading.local()
        self._noted: set[str] = set()
        self._debug: DebugRecords | None = None
        self._begin()

    def start_over(self) -> None:
        """Begin again in a forked child, which must not share the parent's file."""
        if self._dumps is not None:
            self._dumps.start_over()
        self._begin()

    def _begin(self) -> None:
        if self._dumps is not None and self._dumps.problem is not None:
            self._note(self._dumps.problem)
        try:
            self._debug = DebugRecords(2 if self._simulated else 1)
        except OSError as error:
            self._debug = None
            self._note(f"graphs have no hash here ({error})")

    def catch_up(self) -> None:
        """Leave out what has happened while nothing was recorded."""
        self._known, _ = _compilations()
        if self._debug is not None:
            self._debug.take()

    def install(self, points: Points) -> None:
        """Put the meter around launches, and around reads, which may launch unseen."""
        points.around(LAUNCH, MEASURE, self.around)
        points.around(READ, MEASURE, self.around_read)
        points.around(FALLBACK, MEASURE, self.around_read)
        points.around(STEP, MEASURE, self.around_step)

    def around_read(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Measure a read that launches by itself.

        Cores that share the process do not: the simulation launches for them, inside its lock,
        and outside of it the counters would show what other cores do.
        """
        if getattr(self._thread, "inside", False) or (self._simulated and _cores_here() > 1):
            return proceed()
        return self.around(call, proceed)

    def around_step(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Tell what was compiled in eager mode since the last step: no call shows it.

        Cores that share the process share these counters too, so there it is not measured.
        """
        if xla.eager():
            new, seconds = 0, []
            if _cores_here() > 1:
                self._note_once(
                    "eager mode: what it compiled is not measured, since the cores of this process "
                    "share torch_xla's counters"
                )
            else:
                compiled, _ = _compilations()
                new, self._known = compiled - self._known, compiled
                seconds = _last_compile_seconds(new, "EagerOpCompileTime")
            call.facts["eager"] = True
            call.facts["compile_seconds"] = sum(seconds)
            taken: list[Any] = seconds if len(seconds) == new else [None] * new
            call.facts["graphs"] = [
                {**_UNKNOWN, "compiled": True, "seconds": one, "hlo": None} for one in taken
            ]
        return proceed()

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)

    def around(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Measure one call."""
        self._thread.inside = True
        try:
            return self._measured(call, proceed)
        finally:
            self._thread.inside = False

    def _measured(self, call: Call, proceed: Callable[[], Any]) -> Any:
        compiled, cached = _compilations()
        if self._debug is not None:
            self._debug.arm()
        began, worked = time.monotonic(), time.thread_time()
        try:
            return proceed()
        finally:
            worked, took = time.thread_time() - worked, time.monotonic() - began
            if self._debug is not None:
                self._debug.disarm()
            after, cached_after = _compilations()
            self._known += after - compiled
            self._put(call.facts, after - compiled, cached_after - cached)
            if not self._simulated:
                waited = took - worked - call.facts["compile_seconds"]
                call.facts["execute_seconds"] = max(0.0, waited)

    def left_over(self) -> list[str]:
        """The names of graphs that were compiled in a launch that has not come back; once."""
        self._records()
        return [] if self._dumps is None else self._dumps.left_over()

    def _records(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What torch_xla has written since the last time; to the user, of the host's first core."""
        if self._debug is None:
            return [], []
        several = self._simulated and _cores_here() > 1
        return self._debug.take(
            tell=not several or xla.core_of_device("xla") == xla.core_of_device("xla:0")
        )

    def _put(self, facts: dict[str, Any], compiled: int, cached: int) -> None:
        facts["compiled"] = compiled
        facts["executed"] = compiled + cached
        kept: list[str | None] = [None] * compiled
        if self._dumps is not None:
            kept = self._dumps.launched(compiled, _cores_here) or kept
        compilations, executions = self._records()
        if not compiled and not self._simulated:
            # Nothing new, and torch_xla has written no record of what it ran, if nobody asked.
            facts["compile_seconds"] = 0.0
            facts["graphs"] = [_KNOWN_GRAPH] * cached
            return
        seconds = _last_compile_seconds(compiled)
        facts["compile_seconds"] = sum(seconds)
        graphs: list[dict[str, Any]] = []
        for at in range(compiled):
            record = compilations[at] if len(compilations) == compiled else _UNKNOWN
            taken = seconds[at] if len(seconds) == compiled else None
            if taken is not None and record["graph"] is not None:
                # Here, inside the simulation's lock: the next core to launch must find it.
                self._took[record["graph"]] = taken
            graphs.append(
                {**record, "compiled": True, "seconds": taken, "took": taken, "hlo": kept[at]}
            )
        fresh = {record["graph"] for record in compilations}
        reused = [record for record in executions if record["graph"] not in fresh]
        for at in range(cached):
            record = reused[at] if len(reused) == cached else _UNKNOWN
            took = self._took.get(record["graph"])
            graphs.append({**_KNOWN_GRAPH, **record, "took": took})
        facts["graphs"] = graphs


_UNKNOWN: dict[str, Any] = {"graph": None, "inputs": None, "outputs": None}
#: A graph that was found compiled.
_KNOWN_GRAPH = {**_UNKNOWN, "compiled": False, "seconds": None, "took": None, "hlo": None}


def _cores_here() -> int:
    """How many cores' main functions run in this process; 0 in a program on one device."""
    count = xla.binding("_xla_get_replication_devices_count")
    return int(count()) if count is not None else 0


def _compilations() -> tuple[int, int]:
    """Graphs compiled and graphs found in the cache, by this process up to now."""
    count = xla.binding("_xla_counter_value")
    return count("UncachedCompile") or 0, count("CachedCompile") or 0


def _last_compile_seconds(count: int, name: str = "CompileTime") -> list[float]:
    """How long each of the last ``count`` compilations took."""
    if count == 0:
        return []
    metric = _metric(name)
    if metric is None:
        return []
    return [nanoseconds / 1e9 for _, nanoseconds in metric[2][-count:]]


def _metric(name: str) -> Any:
    """A metric as (count, sum, [(when, value), ...]), times in nanoseconds; None if there is none.

    With 1024 samples this costs 0.1 ms. XLA_METRICS_SAMPLES would make it cheaper and the
    percentiles of the user's own metrics report wrong, so it stays as it is and is asked rarely.
    """
    read = xla.binding("_xla_metric_data")
    return read(name) if read is not None else None
