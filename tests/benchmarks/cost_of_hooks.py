"""What the agent's own Python costs a step and a read, without torch_xla: microseconds of CPU time.

``PYTHONPATH=. python tests/benchmarks/cost_of_hooks.py``. The calls pass through the real points,
recorder and meter; torch_xla behind them is an empty function, so what its counters cost (less than
a microsecond each) is not in it. CPU time of one thread hardly depends on how busy the machine is.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Any

from xladoctor.capture.agent import measure, recorder, xla
from xladoctor.capture.agent.account import SINGLE_STEPS
from xladoctor.capture.agent.points import LAUNCH, READ, STEP, Call, Points
from xladoctor.capture.agent.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS, CALLS = 7, 2000


class NoRecords:
    """Debug records of a program that compiles nothing any more."""

    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def take(self, *, tell: bool = True) -> tuple[list, list]:
        return [], []


def installed() -> Points:
    """The points of one process on one device, as the agent installs them."""
    launches = [5, 0]

    def counted() -> tuple[int, ...]:
        launches[1] += 1  # each graph is found in the cache
        return tuple(launches)

    xla.binding = lambda name: None
    measure._compilations = counted
    measure.DebugRecords = lambda level: NoRecords()
    points = Points(lambda hook, error: print("hook off:", hook, error))
    writer = Writer(tempfile.mkdtemp())
    watching = recorder.Recorder(writer, simulated_cores=None)
    watching._start = lambda: None
    watching.process.write_metrics = lambda: None
    watching.install(points)
    measure.Meter(simulated=False, note=print).install(points)
    return points


def microseconds(function: Callable[[], Any], calls: int) -> float:
    """CPU time of this thread for one call."""
    began = time.thread_time()
    for _ in range(calls):
        function()
    return (time.thread_time() - began) / calls * 1e6


def main() -> None:
    points = installed()

    def nothing(*args: Any) -> None: ...

    def step() -> None:
        points.run(Call(STEP, "SGD", 0, (None,)), nothing)
        points.run(Call(LAUNCH, "_xla_step_marker", 0, ("xla:0", [], False)), nothing)

    def read() -> None:
        points.run(Call(READ, "item", 0), nothing)

    first = microseconds(step, SINGLE_STEPS)
    later = min(microseconds(step, CALLS) for _ in range(ROUNDS))
    reading = min(microseconds(read, CALLS) for _ in range(ROUNDS))
    print(f"hooks of a step: {later:.0f} us; of each of the first {SINGLE_STEPS}: {first:.0f} us")
    print(f"hooks of a read: {reading:.0f} us")


main()
