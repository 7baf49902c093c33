"""Steps of a core that has no optimizer: the iterations of its loop.

A program that only evaluates steps no optimizer. The agent counts how often it ends its graphs
itself; only when the whole record of a core has been read is it known whether these are its steps,
or those of an evaluation before a training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_OPTIMIZER = (
    "No optimizer has stepped: the iterations of the loop, which torch_xla.sync() or a data loader "
    "ends, are taken as steps; xladoctor.step() in the loop says it exactly."
)


class Iterations:
    """Holds back the stretches of time before a core's first step, until they can be numbered."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[dict[str, Any]]] = {}
        self._stepping: set[int] = set()

    def settled(self, core: int, event: dict[str, Any]) -> list[dict[str, Any]]:
        """The stretches of a core whose numbers are known now.

        Args:
            core: The core.
            event: Its next stretch.
        """
        if event.get("last") is not None:
            self._stepping.add(core)
        if core in self._stepping:
            return [*self._waiting.pop(core, ()), event]
        self._waiting.setdefault(core, []).append(event)
        return []

    def at_end(self) -> Iterator[tuple[int, int, list[dict[str, Any]]]]:
        """The cores that never stepped, each with its iterations and stretches, now numbered."""
        for core, events in sorted(self._waiting.items()):
            done = 0
            numbered = []
            for event in events:
                iterations = event.get("iterations")
                if isinstance(iterations, int) and iterations > 0:
                    event = {**event, "first": done + 1, "last": done + iterations}
                    done += iterations
                numbered.append(event)
            yield core, done, numbered
