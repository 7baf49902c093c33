"""Which cores run now, for the parts of the simulation that put something around points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..agent import xla
from ..agent.points import SIMULATE, Call, Points

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cores import Core, CoreGroup
    from .crossing import Crossing
    from .hosts import Share
    from .pod import Pod


#: Seconds between two looks whether the run is over, for a core that waits for its turn.
_POLL_SECONDS = 0.2


def acquire(lock: Any, core: Core | None) -> None:
    """Take a lock that other cores hold for a while.

    Args:
        lock: With the methods of ``threading.Lock``.
        core: Who waits; None outside of cores.

    Raises:
        CoreStopped: The run is over.
    """
    while not lock.acquire(timeout=_POLL_SECONDS):
        if core is not None:
            core.group.check()


def once(tell: Callable[[str, dict[str, Any]], None]) -> Callable[[str], None]:
    """What says a sentence, as "not-obeyed", the first time that it is called."""
    said: list[str] = []

    def say(message: str) -> None:
        if not said:
            said.append(message)
            tell("not-obeyed", {"message": message})

    return say


class Running:
    """The group that runs now.

    Args:
        points: The process's points.
    """

    def __init__(self, points: Points) -> None:
        self.points = points
        #: None before the first launch; a group that has ended stays until the next one begins.
        self.group: CoreGroup | None = None
        #: Where the cores are spread over several processes: which of them these are, and what
        #: carries their collectives out.
        self.share: Share | None = None
        self.crossing: Crossing | None = None
        #: Makes the process itself a core, where the program has no launch; None if it has.
        self.begin_here: Callable[[], None] | None = None

    def core(self, number: int | None) -> Core | None:
        """The group's core of that number; None when no cores run."""
        if self.begin_here is not None and number is not None:
            begin, self.begin_here = self.begin_here, None
            begin()
        group = self.group
        return None if group is None or number is None else group.cores.get(number)

    @property
    def pod(self) -> Pod | None:
        """The group that runs now, if it is spread over several processes."""
        group: Any = self.group
        return group if self.share is not None else None

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
