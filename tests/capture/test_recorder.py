"""What the recorder books for cores that share one process, with a runtime and a clock of its own.

The runtime is invented: it takes as long as a test says. The recorder, the meter and the books are
the real ones, and the cores are threads that wait for one another where a test says so.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from xladoctor.capture.agent import measure, recorder
from xladoctor.capture.agent.points import LAUNCH, SIMULATE, Call, Points

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds after which a test that waits for a core gives up.
PATIENCE = 180


class Clock:
    """Time that only passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def passes(self, seconds: float) -> None:
        self.now += seconds


class Runtime:
    """Graphs, which of them are compiled, and what torch_xla's debug record says of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: set[str] = set()
        self._compiled: list[str] = []
        self._executed: list[str] = []
        self.counts = [0, 0]
        self.seconds: list[float] = []

    def launch(self, graph: str, seconds: float) -> None:
        """Run a graph; compiling it takes some seconds if it is new here."""
        self._executed.append(graph)
        if graph in self._known:
            self.counts[1] += 1
            return
        self._known.add(graph)
        self._compiled.append(graph)
        self.counts[0] += 1
        self.seconds.append(seconds)
        self._clock.passes(seconds)

    # -- as DebugRecords ----------------------------------------------------------------------
    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def take(self, *, tell: bool = True) -> tuple[list[dict], list[dict]]:
        compiled, executed = (
            [{"graph": name, "inputs": 2, "outputs": 1} for name in names]
            for names in (self._compiled, self._executed)
        )
        self._compiled, self._executed = [], []
        return compiled, executed


class Cores:
    """Cores of one process; ``gates`` says what a core does around its launch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.runtime = Runtime(self.clock)
        self.rows: list[dict] = []
        self.gates: dict[int, Callable] = {}
        monkeypatch.setattr("time.monotonic", lambda: self.clock.now)
        monkeypatch.setattr(measure, "_compilations", lambda: tuple(self.runtime.counts))
        monkeypatch.setattr(
            measure, "_last_compile_seconds", lambda n: self.runtime.seconds[-n:] if n else []
        )
        monkeypatch.setattr(measure, "_cores_here", lambda: 2)
        monkeypatch.setattr(measure, "DebugRecords", lambda level: self.runtime)
        self.failed: list[BaseException] = []
        self._points = Points(lambda name, error: self.failed.append(error))
        self.recorder = recorder.Recorder(Rows(self.rows), simulated_cores=2)
        self.recorder._start = lambda: None  # it asks torch_xla for the device
        self.recorder.process.write_metrics = lambda: None
        self.recorder.install(self._points)
        self._points.around(LAUNCH, SIMULATE, self._gate)
        measure.Meter(simulated=True, note=print).install(self._points)

    def _gate(self, call: Call, proceed: Callable) -> object:
        return self.gates[call.core](call, proceed)

    def step(self, core: int, graph: str, seconds: float) -> None:
        """One optimizer step of a core, which ends with a graph."""
        account, _ = self.recorder._accounts.of(core, threading.get_ident())
        account.pending = 1
        call = Call(LAUNCH, "_xla_step_marker", core)
        self._points.run(call, lambda: self.runtime.launch(graph, seconds))

    def parts(self, core: int) -> dict[str, float]:
        """What the core's steps have booked, without what is nothing."""
        found: dict[str, float] = {}
        for row in self.rows:
            if row["e"] == "step" and row["core"] == core:
                for part, seconds in row["parts"].items():
                    if seconds:
                        found[part] = found.get(part, 0.0) + seconds
        return found


class Rows:
    """A writer that keeps the rows."""

    working = True

    def __init__(self, rows: list[dict]) -> None:
        self._rows = rows

    def rows(self, rows: object) -> None:
        self._rows.extend(rows)

    def replace(self, name: str, text: str) -> None: ...


@pytest.fixture
def cores(monkeypatch):
    return Cores(monkeypatch)


def _wait(event: threading.Event) -> None:
    assert event.wait(PATIENCE), "a core did not come"


def _together(*functions: Callable) -> None:
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("first_to_leave", ["the one that compiled", "the one that waited"])
def test_a_core_that_waits_for_anothers_compilation_has_compiled(cores, first_to_leave):
    """Whichever of the two is first to close its books when the lock is free again."""
    arrived, compiled, left = (threading.Event() for _ in range(3))

    def compiles(call, proceed):
        _wait(arrived)
        result = proceed()
        compiled.set()
        if first_to_leave == "the one that waited":
            _wait(left)
        return result

    def waits(call, proceed):
        began = cores.clock.now
        arrived.set()
        _wait(compiled)
        if first_to_leave == "the one that compiled":
            _wait(left)
        call.facts["waited"] = cores.clock.now - began
        return proceed()

    def run(core, name):
        cores.step(core, "g", seconds=2.0)
        if first_to_leave == name:
            left.set()

    cores.gates = {0: compiles, 1: waits}
    _together(lambda: run(0, "the one that compiled"), lambda: run(1, "the one that waited"))
    assert cores.parts(0) == {"compile": 2.0}
    assert cores.parts(1) == {"compile": 2.0}
    new = [(row["core"], row["seconds"], row["reused"]) for row in cores.rows
           if row["e"] == "compilation"]  # fmt: skip
    assert sorted(new) == [(0, 2.0, False), (1, None, True)]
    assert not cores.failed


def test_a_core_is_booked_no_longer_than_it_waited(cores):
    """The books add up to the clock: who comes when half of it is done has waited for a half."""

    def late(call, proceed):
        cores.clock.passes(0.5)
        call.facts["waited"] = 0.5
        return proceed()

    cores.gates = {0: lambda call, proceed: proceed(), 1: late, 2: lambda call, proceed: proceed()}
    cores.step(0, "g", seconds=2.0)
    cores.step(1, "g", seconds=2.0)
    cores.step(2, "g", seconds=2.0)
    assert cores.parts(0) == {"compile": 2.0}
    assert cores.parts(1) == {"compile": 0.5}
    assert cores.parts(2) == {}


def test_waiting_for_a_graph_that_is_not_ones_own_is_not_compilation(cores):
    def waits(call, proceed):
        cores.clock.passes(3.0)
        call.facts["waited"] = 3.0
        return proceed()

    cores.gates = {0: lambda call, proceed: proceed(), 1: waits}
    cores.step(0, "g", seconds=3.0)
    cores.step(1, "h", seconds=1.0)
    assert cores.parts(1) == {"compile": 1.0, "core_wait": 3.0}
    # It is in the cache by now and this core has run it: waiting has nothing to do with it.
    cores.step(1, "h", seconds=1.0)
    assert cores.parts(1) == {"compile": 1.0, "core_wait": 6.0}
