"""What the checks remember of each core, and how they tell what they found."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ...agent import xla
from ..places import user_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..cores import Core, CoreGroup
    from ..places import Place
    from ..running import Running

#: Findings that one check may tell of one core; more are more of the same.
MOST_TOLD = 20


@dataclasses.dataclass(slots=True)
class Mind:
    """One core's memory.

    Attributes:
        steps: Optimizer steps so far.
        told: What has been told: check and place.
        notes: What each check keeps, by its name.
    """

    steps: int = 0
    told: set[tuple[str, Any]] = dataclasses.field(default_factory=set)
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)

    def note(self, check: str, make: Callable[[], Any]) -> Any:
        """What a check keeps, made when it is first asked for."""
        if check not in self.notes:
            self.notes[check] = make()
        return self.notes[check]


class Memory:
    """The minds of the cores that run.

    Args:
        running: The cores that run.
    """

    def __init__(self, running: Running) -> None:
        self.running = running
        self._minds: weakref.WeakKeyDictionary[CoreGroup, dict[int, Mind]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    def of(self, core: Core) -> Mind:
        """A core's memory; each launch of cores begins with an empty one."""
        with self._lock:
            return self._minds.setdefault(core.group, {}).setdefault(core.number, Mind())

    def tell(self, core: Core, check: str, place: Place | None, **facts: Any) -> None:
        """Tell what a check has found; the same of the same place only once.

        Args:
            core: The core on which it was seen.
            check: Its name.
            place: The line to change, as far as it is known.
            facts: Numbers, strings and lists for the diagnosis.
        """
        mind = self.of(core)
        key = (check, place if place is not None else str(sorted(facts)))
        if key in mind.told or sum(one == check for one, _ in mind.told) >= MOST_TOLD:
            return
        mind.told.add(key)
        core.group.tell(
            "silent", check=check, core=core.number, step=mind.steps + 1, place=place, **facts
        )

    @contextlib.contextmanager
    def guarded(self, core: Core, check: str) -> Iterator[None]:
        """A check never stops a program that would go on without it; that it failed is told."""
        try:
            yield
        except Exception as error:
            key = ("check-off", check)
            mind = self.of(core)
            if key not in mind.told:
                mind.told.add(key)
                core.group.tell("check-off", check=check, error=error)

    def here(self) -> Core | None:
        """The core of the calling thread, unless dynamo is tracing the program."""
        import torch

        return None if torch.compiler.is_compiling() else self.running.here


def place_of(core: Core) -> Place | None:
    """The user's line that the core is at."""
    return user_frame(core.thread)


def watch(owner: Any, name: str, memory: Memory, look: Callable[..., None]) -> None:
    """Have a function's calls looked at by the core that makes them, before they are made.

    Args:
        owner: Module or class; nothing happens if it has no such name.
        name: The function.
        memory: Finds the core; what is called outside of cores is not looked at.
        look: Gets the core and the arguments; see :meth:`Memory.guarded` for what it raises.
    """
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        core = memory.here()
        if core is not None:
            with memory.guarded(core, name):
                look(core, *args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, watched)


def values_of(tensor: Any) -> Any:
    """A device tensor's values as a host tensor that shares its memory.

    Returns:
        None if they have still to be computed: to read them would cut the program's graph.
    """
    import torch

    from ..reductions import computed

    share = xla.binding("_to_dlpack")
    if share is None or not computed([tensor]):
        return None
    return torch.from_dlpack(share(tensor.detach()))
