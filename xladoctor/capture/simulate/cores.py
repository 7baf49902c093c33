"""What the simulated cores of this process share: who runs, who waits for whom, who has failed.

A :class:`Crew` is the set of cores of one launch. Cores come together in a *meeting*: before a
graph with a collective is launched, and in a rendezvous. A meeting is complete when every core is
there. It can never be complete once a core has ended or failed, or when all are there but not for
the same purpose: then every core is stopped with a message that names the cores. On a TPU the same
program can hang.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any

from .divergence import Pending, difference, lines_of_difference, odd_ones
from .places import Place, place_named, user_frame, user_place
from .wording import names

if TYPE_CHECKING:
    from collections.abc import Callable


#: After a failure the other cores get this long to stop by themselves, then the process is ended.
GRACE_SECONDS = 5.0
#: The same when cores are known to wait inside a collective that can never be complete: XLA
#: complains after 5 s and aborts the process after 10 s.
GRACE_IN_COLLECTIVE_SECONDS = 1.0


ON_A_TPU = (
    "On a TPU this can hang or give wrong results: every core must run the same graphs, "
    "in the same order"
)


class CoreStopped(BaseException):
    """Ends a core because the run is over; no ``except Exception`` of the program may catch it."""


@dataclasses.dataclass(slots=True)
class Core:
    """One simulated core while its main function runs.

    Attributes:
        number: Its ordinal.
        thread: Identity of its thread.
        collectives: What it has put into its pending graph, as (name, detail) pairs.
        roots: Optimizer (its id) to parameters, of those that have stepped since the last launch.
        reads: Names of the newest reads since the last launch.
        tokens: Tokens of launched collectives, kept until their graph has run.
        waits_for: What it waits for, in words; None while it does not wait.
        since: Monotonic time since when it waits.
        launches: Number of graphs it has launched.
        ended: Whether its main function has returned.
        pinned: Whether its newest reduction pins the layout.
        reductions: Collectives put into its graph since the last optimizer step.
        clipped: Where gradients were clipped since then.
    """

    number: int
    thread: int
    collectives: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    roots: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    reads: collections.deque[str] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=16)
    )
    tokens: list[Any] = dataclasses.field(default_factory=list)
    waits_for: str | None = None
    since: float = 0.0
    launches: int = 0
    ended: bool = False
    pinned: bool = True
    reductions: int = 0
    clipped: Place | None = None


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
        #: Whether a collective has been launched that can never be complete.
        self.stuck = False
        self._shown = False
        self._on_event = on_event
        self._changed = threading.Condition()
        self.meeting = Meeting()

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

    @property
    def waits(self) -> dict[int, str]:
        """What each core waits for, in words; cores that do not wait are left out."""
        return {
            core.number: core.waits_for
            for core in self.cores.values()
            if core.waits_for is not None
        }

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
            meeting = self.meeting
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
            if not meeting.complete:
                self.check()
            return meeting

    def _check_meeting(self) -> None:
        """Complete the meeting, or end the run if it can never be complete. Holds the lock."""
        meeting = self.meeting
        here = meeting.purposes
        if not here:
            return
        ended = sorted(core.number for core in self.cores.values() if core.ended)
        if len(here) + len(ended) < self.size:
            return
        if not ended and len(set(here.values())) == 1:
            meeting.complete = True
            self.meeting = Meeting()
            self._changed.notify_all()
            return
        self._end(*describe(self, ended))

    def differ(self, core: Core, meeting: Meeting) -> None:
        """A core compiles another graph than those that met with it and have launched theirs."""
        odd = odd_ones({number: brought.reads for number, brought in meeting.brought.items()})
        if odd:
            who = names(odd[0])
            what = meeting.brought[odd[0][0]].reads
            why = f": {who} read values before it ({', '.join(what)}) and the others did not"
            if not what:
                why = f": {who} did not read the values before it that the others read"
        else:
            odd, why = ([core.number], []), ""
        message = (
            "xladoctor: the cores build different graphs for the same launch"
            f"{user_place(core.thread)}, and they hold a collective{why}. {ON_A_TPU}"
        )
        with self._changed:
            self.grace, self.stuck = GRACE_IN_COLLECTIVE_SECONDS, True
            facts = {"cores": odd[0], "place": user_frame(core.thread)}
            self._end("graphs-differ", message, facts)

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
    if not ended:
        graphs = _describe_graphs(crew)
        if graphs:
            return graphs
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
    message += ON_A_TPU
    facts = {
        "ended": ended,
        "waits": crew.waits,
        "waiting": [[words, cores] for words, cores in waiting.items()],
    }
    return kind, message, facts


def _describe_graphs(crew: Crew) -> tuple[str, str, dict[str, Any]] | None:
    """The case that all cores want to launch, but not the same graph."""
    brought = crew.meeting.brought
    if not all(isinstance(one, Pending) for one in brought.values()):
        return None
    odd = odd_ones({number: one.graph for number, one in brought.items()})
    if odd is None:
        return None
    texts = brought[odd[0][0]].text(), brought[odd[1][0]].text()
    what = difference(*texts)
    lines = (place_named(*line) for line in lines_of_difference(*texts))
    thread = crew.cores[odd[0][0]].thread
    message = (
        f"xladoctor: {names(odd[0])} and {names(odd[1])} build different graphs for the same "
        f"launch{user_place(thread)}"
        + (f" (in {names(odd[0][:1])}: {what})" if what else "")
        + f". {ON_A_TPU}"
    )
    return (
        "graphs-differ",
        message,
        {
            "cores": odd[0],
            "difference": what,
            "place": user_frame(thread),
            "cause_place": next((line for line in lines if line is not None), None),
        },
    )


def _ignore(kind: str, facts: dict[str, Any]) -> None:
    """The default listener."""
