"""Which cores run now, for the parts of the simulation that put something around points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..agent import xla
from ..agent.points import SIMULATE, Call, Points

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cores import Core, CoreGroup


class Running:
    """The group that runs now.

    Args:
        points: The process's points.
    """

    def __init__(self, points: Points) -> None:
        self.points = points
        #: None before the first launch; a group that has ended stays until the next one begins.
        self.group: CoreGroup | None = None

    def core(self, number: int | None) -> Core | None:
        """The group's core of that number; None when no cores run."""
        group = self.group
        return None if group is None or number is None else group.cores.get(number)

    @property
    def here(self) -> Core | None:
        """The core of the calling thread."""
        return self.core(xla.current_core())

    def around(
        self, point: str, function: Callable[[Core, Call, Callable[[], Any]], Any], name: str
    ) -> None:
        """Put a function around a point; what no core of a group does passes it by.

        Args:
            point: See ``points``.
            function: Gets the calling core, the call and ``proceed``.
            name: Of the part, for messages.
        """

        def when_running(call: Call, proceed: Callable[[], Any]) -> Any:
            core = self.core(call.core)
            return proceed() if core is None else function(core, call, proceed)

        self.points.around(point, SIMULATE, when_running, name)
