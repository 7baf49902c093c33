"""What the simulated cores of this process share: who runs, who waits for whom, who has failed.

A :class:`Crew` is the set of cores of one launch. Cores come together in a *meeting*: before a
graph with a collective is launched, and in a rendezvous. A meeting is complete when every core is
there. It can never be complete once a core has ended or failed, or when all are there but not for
the same purpose: then every core is stopped with a message that names the cores. On a TPU the same
program can hang.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any

from .places import user_place

if TYPE_CHECKING:
    from collections.abc import Callable


#: After a failure the other cores get this long to stop by themselves, then the process is ended.
GRACE_SECONDS = 5.0
#: The same when cores are known to wait inside a collective that can never be complete: XLA
#: complains after 5 s and aborts the process after 10 s.
GRACE_IN_COLLECTIVE_SECONDS = 1.0


class CoreStopped(BaseException):
    """Ends a core because the run is over; no ``except Exception`` of the program may catch it."""


@dataclasses.dataclass(slots=True)
class Core:
    """One simulated core while its main function runs.

    Attributes:
        number: Its ordinal.
        thread: Identity of its thread.
        collectives: What it has put into its pending graph, as (name, detail) pairs.
        tokens: Tokens of launched collectives, kept until their graph has run.
        waits_for: What it waits for, in words; None while it does not wait.
        since: Monotonic time since when it waits.
        launches: Number of graphs it has launched.
        ended: Whether its main function has returned.
    """

    number: int
    thread: int
    collectives: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    tokens: list[Any] = dataclasses.field(default_factory=list)
    waits_for: str | None = None
    since: float = 0.0
    launches: int = 0
    ended: bool = False


@dataclasses.dataclass(slots=True)
class Meeting:
    """One coming together of all cores.

    Attributes:
        purposes: Core to what it came for; all must be equal.
        brought: Core to what it brings.
        complete: Whether everybody was there.
        launched: How many cores have launched the graph they met for.
    """

    purposes: dict[int, str] = dataclasses.field(default_factory=dict)
    brought: dict[int, Any] = dataclasses.field(default_factory=dict)
    complete: bool = False
    launched: int = 0


class Crew:
    """The cores of one launch in this process.

    Args:
        size: Number of cores.
        on_event: Told what the run directory should know: ``on_event(kind, facts)``.
    """

    def __init__(self, size: int, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        self.size = size
        self.cores: dict[int, Core] = {}
        self.failure: tuple[int | None, BaseException] | None = None
        self.failed_at = 0.0
        self.progress = time.monotonic()
        self.grace = GRACE_SECONDS
        self._shown = False
        self._on_event = on_event
        self._changed = threading.Condition()
        self._meeting = Meeting()

    def tell(self, kind: str, **facts: Any) -> None:
        """Report an event; whatever the listener does must not reach the program."""
        try:
            self._on_event(kind, facts)
        except Exception:
            self._on_event = _ignore

    def enter(self, number: int) -> Core:
        """A core begins its main function."""
        with self._changed:
            core = self.cores[number] = Core(number, threading.get_ident())
            self.progress = time.monotonic()
            return core

    def leave(self, number: int) -> None:
        """A core's main function has returned."""
        with self._changed:
            self.cores[number].ended = True
            self.progress = time.monotonic()
            self._check_meeting()

    def fail(self, number: int | None, error: BaseException) -> bool:
        """The run cannot go on; the first failure counts.

        Args:
            number: The core that failed; None if it is not the fault of one core.
            error: What to show.

        Returns:
            Whether this was the first.
        """
        with self._changed:
            if self.failure is not None:
                return False
            self.failure = (number, error)
            self.failed_at = time.monotonic()
            self._changed.notify_all()
        return True

    def check(self) -> None:
        """Stop the calling core if the run is over.

        Raises:
            CoreStopped: Another core has failed.
        """
        if self.failure is not None:
            raise CoreStopped

    def first_to_show(self) -> bool:
        """Whether the caller is the first that wants to print why the run is over."""
        with self._changed:
            first, self._shown = not self._shown, True
            return first

    @property
    def over(self) -> bool:
        """Whether every core has returned."""
        return len(self.cores) == self.size and all(core.ended for core in self.cores.values())

    def meet(self, core: Core, purpose: str, words: str, brings: Any = None) -> Meeting:
        """Wait until all cores are here for the same purpose.

        Args:
            core: The calling core.
            purpose: What all must have in common, as a key.
            words: The same for people ("a graph with 3 collectives", "rendezvous 'save'").
            brings: What the others get to see.

        Returns:
            The meeting, complete.

        Raises:
            CoreStopped: The run is over.
        """
        with self._changed:
            self.check()
            meeting = self._meeting
            meeting.purposes[core.number] = purpose
            meeting.brought[core.number] = brings
            core.waits_for, core.since = words, time.monotonic()
            self.progress = core.since
            self._check_meeting()
            try:
                while not meeting.complete and self.failure is None:
                    self._changed.wait()
            finally:
                core.waits_for = None
                self.progress = time.monotonic()
            self.check()
            return meeting

    def _check_meeting(self) -> None:
        """Complete the meeting, or end the run if it can never be complete. Holds the lock."""
        meeting = self._meeting
        here = meeting.purposes
        if not here:
            return
        ended = sorted(core.number for core in self.cores.values() if core.ended)
        if len(here) + len(ended) < self.size:
            return
        if not ended and len(set(here.values())) == 1:
            meeting.complete = True
            self._meeting = Meeting()
            self._changed.notify_all()
            return
        self._end(*describe(self, ended))

    def differ(self, core: Core) -> None:
        """A core compiles another graph than those that met with it and have launched theirs."""
        message = (
            f"xladoctor: core {core.number} builds another graph than the cores before it, and "
            f"both hold a collective{user_place(core.thread)}. On a TPU this can hang or give "
            "wrong sums: every core must build the same graph"
        )
        with self._changed:
            self.grace = GRACE_IN_COLLECTIVE_SECONDS
            self._end("graphs-differ", message, {"core": core.number})

    def _end(self, kind: str, message: str, facts: dict[str, Any]) -> None:
        if self.failure is None:
            self.failure = (None, RuntimeError(message))
            self.failed_at = time.monotonic()
            self.tell(kind, message=message, **facts)
            self._changed.notify_all()


def describe(crew: Crew, ended: list[int]) -> tuple[str, str, dict[str, Any]]:
    """Say why a meeting cannot take place.

    Returns:
        Kind of the event, the sentence, and the facts for the run directory.
    """
    waiting: dict[str, list[int]] = {}
    for core in sorted(crew.cores.values(), key=lambda one: one.number):
        if core.waits_for is not None:
            place = user_place(core.thread)
            waiting.setdefault(f"{core.waits_for}{place}", []).append(core.number)
    parts = [
        f"{names(numbers)} {'wait' if len(numbers) > 1 else 'waits'} in {words}"
        for words, numbers in waiting.items()
    ]
    if ended:
        kind = "core-left"
        parts.append(f"{names(ended)} {'have' if len(ended) > 1 else 'has'} already ended")
    else:
        kind = "cores-differ"
    message = f"xladoctor: the cores do not run the same program: {'; '.join(parts)}. "
    message += "On a TPU this can hang: every core must reach every collective, in the same order"
    facts = {"ended": ended, "waiting": [[words, cores] for words, cores in waiting.items()]}
    return kind, message, facts


def names(numbers: list[int]) -> str:
    """Cores in words: "core 3", "cores 0, 2 and 5" or "cores 0 to 6"."""
    if len(numbers) == 1:
        return f"core {numbers[0]}"
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"cores {numbers[0]} to {numbers[-1]}"
    return f"cores {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _ignore(kind: str, facts: dict[str, Any]) -> None:
    """The default listener."""
