"""What each core did along the time of a run: the type that the trace and the page draw.

Times are seconds of the wall clock since the first recorded moment of the run.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.findings import Location


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """Something counted in a stretch of time; the moment inside the stretch is not recorded.

    Attributes:
        part: The part of the time that it belongs to ("compile", "host_sync", "fallback").
        what: How the value was read ("item"), the operation, or what ended the new graph ("step").
        location: The user's line.
        count: How many.
        seconds: What they took together; None when not measured (a graph that another core
            compiled).
        kinds: Of reads, how many of each kind (``results.KINDS_OF_READ``), where recorded.
        graph: Of a compilation, its place among the report's compilations, from 1.
    """

    part: str
    what: str
    location: Location | None
    count: int = 1
    seconds: float | None = None
    kinds: Mapping[str, int] | None = None
    graph: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of one core's time: one step, a block of steps, or what is between steps.

    Attributes:
        core: The core.
        first, last: The optimizer steps that it covers, from 1; both None for none.
        start: When it began.
        seconds: How long it took.
        parts: Seconds by kind of work; they add up to ``seconds``.
        events: Compilations, reads and fallbacks in it.
        graphs: Graphs that ran in it; None between steps, where they are not told apart.
        fastest, slowest: Seconds of one step of a block, where that was recorded.
    """

    core: int
    first: int | None
    last: int | None
    start: float
    seconds: float
    parts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    events: tuple[Event, ...] = ()
    graphs: int | None = None
    fastest: float | None = None
    slowest: float | None = None

    @property
    def steps(self) -> int:
        """How many optimizer steps it covers."""
        return 0 if self.first is None or self.last is None else self.last - self.first + 1

    def count(self, part: str) -> int:
        """How many compilations ("compile"), reads or fallbacks were in it."""
        return sum(event.count for event in self.events if event.part == part)

    @property
    def name(self) -> str:
        """``step 7``, ``steps 1001-1010``, ``between steps``."""
        if not self.steps:
            return "between steps"
        return f"step {self.first}" if self.steps == 1 else f"steps {self.first}-{self.last}"


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """Where a core stood when the cores could not go on.

    Attributes:
        core: The core; None if that is not known.
        at: When.
        text: What it waited in, in words.
        location: The user's line.
    """

    core: int | None
    at: float
    text: str
    location: Location | None


@dataclasses.dataclass(frozen=True, slots=True)
class Timeline:
    """All that is known along the time; stretches are sorted by core and start."""

    stretches: tuple[Stretch, ...] = ()
    stops: tuple[Stop, ...] = ()

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores that have stretches or stops."""
        numbers = {one.core for one in self.stretches}
        return tuple(sorted(numbers | {one.core for one in self.stops if one.core is not None}))

    def to_json(self) -> list[dict[str, Any]]:
        """The stretches as the report's JSON lists them."""
        return [
            {
                "core": one.core,
                "first": one.first,
                "last": one.last,
                "start": one.start,
                "seconds": one.seconds,
                "parts": dict(one.parts),
                "fastest": one.fastest,
                "slowest": one.slowest,
                "compilations": one.count("compile"),
                "host_syncs": one.count("host_sync"),
                "fallbacks": one.count("fallback"),
                "graphs_run": one.graphs,
            }
            for one in self.stretches
        ]
