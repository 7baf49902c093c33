"""The row of the run directory that says what a core did between two step boundaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing import TypeAlias

PARTS = ("compile", "execute", "input_wait", "host_sync", "trace", "fallback", "other")
#: Written beside them; reports count them as "other", and can say what it holds: waiting for other
#: cores, and sending tensors to the device.
WITHIN_OTHER = ("core_wait", "transfer")

#: The books of a new row; "launch" is open: what of it is not given to a part is tracing.
NO_PARTS = dict.fromkeys((*PARTS, *WITHIN_OTHER, "launch"), 0.0)

#: Numbers by site and what was done there.
Table: TypeAlias = "dict[tuple[int, str], list[Any]]"


class Row(NamedTuple):
    """What a core has booked between two step boundaries, before anyone writes it.

    Attributes:
        core: The core.
        steps: First and last step; None for what belongs to no step.
        times: From when to when.
        parts: Seconds by part.
        syncs, fallbacks, launches: By site and what it was.
        transfers: Tensors by direction.
        iterations: Iterations of a loop without an optimizer.
        held: If one graph held several steps of an optimizer: how many at most, the place of the
            step, and what ended the graph.
        fastest, slowest: Seconds of the fastest and the slowest step (or iteration) in it.
    """

    core: int
    steps: tuple[int, int] | None
    times: tuple[float, float]
    parts: dict[str, float]
    syncs: Table
    fallbacks: Table
    launches: Table
    transfers: dict[str, int]
    iterations: int
    held: tuple[int, int | None, str] | None = None
    fastest: float | None = None
    slowest: float | None = None

    def event(self) -> dict[str, Any]:
        """The row as it is written."""
        parts = {part: round(value, 7) for part, value in self.parts.items()}
        parts["trace"] = round(self.parts["trace"] + self.parts["launch"], 7)
        del parts["launch"]
        first, last = self.steps or (None, None)
        event = {
            "e": "step",
            "core": self.core,
            "first": first,
            "last": last,
            "t0": self.times[0],
            "t1": self.times[1],
            "parts": parts,
            "syncs": _entries(self.syncs),
            "fallbacks": _entries(self.fallbacks),
            "launches": _entries(self.launches),
            "transfers": self.transfers,
        }
        if self.iterations and last is None:
            event["iterations"] = self.iterations
        if self.fastest is not None and (self.iterations > 1 or (last or 0) > (first or 0)):
            event["fastest"], event["slowest"] = self.fastest, self.slowest
        if self.held is not None:
            event["held"] = list(self.held)
        return event


def _entries(table: Table) -> list[list[Any]]:
    return [
        [site, what, *(round(value, 7) if isinstance(value, float) else value for value in values)]
        for (site, what), values in table.items()
    ]
