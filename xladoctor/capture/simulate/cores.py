"""What the simulated cores of this process share: who runs, who waits for whom, who has failed.

A :class:`CoreGroup` is the set of cores of one launch. Cores come together in a *meeting*: before a
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

from .accounts import Account
from .belongings import standard
from .deadlock import describe, tags_differ
from .divergence import Pending
from .mismatch import ON_A_TPU, of_graphs
from .modes import Mode, Rooms
from .places import user_frame, user_place
from .wording import names

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from .divergence import Collective
    from .places import Place

#: After a failure the other cores get this long to stop by themselves, then the process is ended.
GRACE_SECONDS = 5.0
#: The same when cores are known to wait inside a collective that can never be complete: XLA
#: complains after 5 s and aborts the process after 10 s.
GRACE_IN_COLLECTIVE_SECONDS = 1.0

#: What the purpose of a meeting before a graph's first collective begins with.
BEFORE = "before "

#: Events that tell where each core stands.
STANDSTILLS = ("hang", "core-left", "cores-differ")

#: How many different sentences about rendezvous with different tags are said in one run.
MOST_SENTENCES = 8


class CoreStopped(BaseException):
    """Ends a core because the run is over; no ``except Exception`` of the program may catch it."""


@dataclasses.dataclass(slots=True)
class Core:
    """One simulated core while its main function runs.

    Attributes:
        group: The cores that it runs with.
        number: Its ordinal.
        thread: Identity of its thread.
        mode: What torch_xla would keep for its process.
        collectives: What it has put into its pending graph.
        roots: The parameters of each optimizer that has stepped since the last launch, by the id of
            the first.
        reads: The newest reads since the last launch: name and line.
        tokens: Tokens of launched collectives, kept until their graph has run.
        waits_for: What it waits for, in words; None while it does not wait.
        since: Monotonic time since when it waits.
        launches: Number of graphs it has launched.
        steps: How often an optimizer has stepped before one of them.
        ended: Whether its main function has returned.
        pinned: Whether the reductions in its pending graph pin the layout; None without any.
        meeting: The newest meeting for which it has launched a graph.
        reductions: Collectives put into its graph since the last optimizer step.
        clipped: Where gradients were clipped since then.
        lost_gradient: The newest collective whose result passes no gradient back, and its line.
        exchanged: Sizes of what the cores brought to the newest rendezvous with payloads.
        met: The lines at which it has come to a meeting.
        again: Whether it had met the others before at the line where it waits now.
        mark: Its number as a tensor on its device, for collectives between processes (see
            ``crossing``).
        crossed: A result of each of those in its pending graph.
        account: What torch_xla would count in its process.
    """

    group: CoreGroup
    number: int
    thread: int
    mode: Mode
    collectives: list[Collective] = dataclasses.field(default_factory=list)
    roots: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    reads: collections.deque[tuple[str, Place | None]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=16)
    )
    tokens: list[Any] = dataclasses.field(default_factory=list)
    waits_for: str | None = None
    since: float = 0.0
    launches: int = 0
    steps: int = 0
    ended: bool = False
    pinned: bool | None = None
    meeting: Meeting | None = None
    reductions: int = 0
    clipped: Place | None = None
    lost_gradient: tuple[str, Place | None] | None = None
    exchanged: list[int] | None = None
    met: set[Place | None] = dataclasses.field(default_factory=set)
    again: bool = False
    mark: Any = None
    crossed: list[Any] = dataclasses.field(default_factory=list)
    account: Account = dataclasses.field(default_factory=Account)

    @property
    def local(self) -> int:
        """Its number among those of this process, which is that of its device."""
        return self.number - self.group.numbers.start

    @property
    def device(self) -> str:
        """Its device, as the runtime calls it."""
        return f"CPU:{self.local}"

    @property
    def place(self) -> Place | None:
        """The line of the user at which it is."""
        return user_frame(self.thread)


@dataclasses.dataclass(slots=True)
class Meeting:
    """One coming together of all cores.

    Attributes:
        purposes: Core to what it came for; all must be equal.
        brought: Core to what it brings.
        complete: Whether everybody was there.
        launched: How many cores have launched the graph they met for.
        first: The first of them; ``first_graph`` is the hash of its graph, if that is known.
        first_compiled: Whether it had to compile it.
        apart: Whether the cores have to run what is pending by themselves, see ``mismatch``.
    """

    purposes: dict[int, str] = dataclasses.field(default_factory=dict)
    brought: dict[int, Any] = dataclasses.field(default_factory=dict)
    complete: bool = False
    launched: int = 0
    first: int = 0
    first_graph: str | None = None
    first_compiled: bool = False
    apart: bool = False


class CoreGroup:
    """The cores of one launch in this process.

    Args:
        size: Number of cores.
        on_event: Told what the run directory should know: ``on_event(kind, facts)``.
        numbers: Those that this process holds; None for all.
    """

    def __init__(
        self,
        size: int,
        on_event: Callable[[str, dict[str, Any]], None],
        numbers: range | None = None,
    ) -> None:
        self.size = size
        self.numbers = range(size) if numbers is None else numbers
        self.cores: dict[int, Core] = {}
        self.failure: tuple[int | None, BaseException] | None = None
        #: The cores that failed after the first, and with what.
        self.also_failed: list[tuple[int, BaseException]] = []
        self.failed_at = 0.0
        #: The kind of the event that tells of the failure.
        self.failed_by = "stopped"
        self.progress = time.monotonic()
        self.grace = GRACE_SECONDS
        #: Whether a collective has been launched that can never be complete.
        self.stuck = False
        #: What has been said of rendezvous, so that a loop does not say it again.
        self._said: set[str] = set()
        self._channels: dict[Hashable, collections.deque[Any]] = collections.defaultdict(
            collections.deque
        )
        self._shown = False
        self._closed = False
        self._on_event = on_event
        self._changed = threading.Condition()
        self.rooms = Rooms()
        self.process_mode = Mode.of_process()
        #: Set when every core has returned.
        self.all_left = threading.Event()
        self.meeting = Meeting()

    def tell(self, kind: str, **facts: Any) -> None:
        """Report an event; whatever the listener does must not reach the program."""
        try:
            self._on_event(kind, facts)
        except Exception:
            self._on_event = _ignore

    def tell_once(self, kind: str, **facts: Any) -> None:
        """The same for what every process of a run finds alike (see ``pod``)."""
        self.tell(kind, **facts)

    @property
    def everyone(self) -> Mapping[int, Any]:
        """All cores that have begun, also those of other processes (see ``pod``)."""
        return self.cores

    def look(self) -> None:
        """Whether those of other processes are alive; now and then (see ``pod``)."""

    def last_words(self) -> None:
        """The process is about to end; the others may want to know (see ``pod``)."""

    def last_progress(self) -> float:
        """Monotonic time of the last progress of any core."""
        return self.progress

    def enter(self, number: int) -> Core:
        """A core begins its main function."""
        with self._changed:
            core = Core(self, number, threading.get_ident(), self.process_mode.copy())
            self.cores[number] = core
            self.progress = time.monotonic()
        self.rooms.enter(core)
        return core

    def leave(self, number: int) -> None:
        """A core's main function has returned."""
        self.rooms.leave(self.cores[number])
        with self._changed:
            self.cores[number].ended = True
            self.progress = time.monotonic()
            self._check_meeting()
            if self.over:
                self.all_left.set()

    def close(self) -> None:
        """The launch is through: torch_xla lets no core begin once another has failed."""
        self._closed = True
        self.all_left.set()

    def fail(self, number: int | None, error: BaseException, kind: str = "stopped") -> bool:
        """The run cannot go on; the first failure counts.

        Args:
            number: The core that failed; None if it is not the fault of one core.
            error: What to show.
            kind: Of the event that tells of it, if the others are to tell of it too.

        Returns:
            Whether this was the first.
        """
        with self._changed:
            if self.failure is not None:
                return False
            self.failed_at = time.monotonic()
            self.failed_by = kind
            self.failure = (number, error)
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
        """Whether every core has returned, or never began and never will."""
        begun = self._closed or len(self.cores) == len(self.numbers)
        return begun and all(core.ended for core in self.cores.values())

    @property
    def waits(self) -> dict[int, str]:
        """What each core waits for, in words; cores that do not wait are left out."""
        return {
            core.number: core.waits_for
            for core in self.everyone.values()
            if core.waits_for is not None
        }

    def send(self, channel: Hashable, value: Any) -> None:
        """Put a value into a channel between two cores."""
        with self._changed:
            self._channels[channel].append(value)
            self._changed.notify_all()

    def receive(self, core: Core, channel: Hashable) -> Any:
        """Take the next value out of a channel, when there is one.

        Raises:
            CoreStopped: The run is over.
        """
        self.rooms.leave(core)
        with self._changed:
            core.waits_for, core.since = f"xm.recv on channel {channel}", time.monotonic()
            try:
                while not self._channels[channel]:
                    self.check()
                    self._changed.wait()
            finally:
                core.waits_for = None
                self.progress = time.monotonic()
            value = self._channels[channel].popleft()
        self.rooms.enter(core)
        return value

    @property
    def purposes(self) -> Mapping[int, str]:
        """Core to what it has come for, of those that wait for the others."""
        return self.meeting.purposes

    def waited_for(self, number: int) -> list[int]:
        """The cores that a waiting core waits for: not there, or there for something else."""
        here = self.purposes
        mine = here.get(number)
        return [other for other in range(self.size) if mine is not None and here.get(other) != mine]

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
        place = user_frame(core.thread)
        core.again = place in core.met
        core.met.add(place)
        with self._changed:
            self.check()
            meeting = self.meeting
            meeting.purposes[core.number] = purpose
            meeting.brought[core.number] = brings
            self.rooms.leave(core)
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
        self.rooms.enter(core)
        return meeting

    def _check_meeting(self) -> None:
        """Complete the meeting, or end the run if it can never be complete. Holds the lock."""
        meeting = self.meeting
        here = meeting.purposes
        if not here:
            return
        ended = sorted(core.number for core in self.cores.values() if core.ended)
        if len(here) + len(ended) == self.size:
            self._decide(meeting, ended)

    def _decide(self, meeting: Meeting, ended: list[int]) -> None:
        """Every core is there, or has ended. Holds the lock."""
        here = meeting.purposes
        if not ended and len(set(here.values())) == 1:
            self._compare_tags(meeting)
            if not self._compare_graphs(meeting):
                return
            meeting.complete = True
            self.rooms.admit(self.cores[number] for number in here if number in self.cores)
            self.meeting = Meeting()
            self._changed.notify_all()
            return
        self._end(*describe(self, ended))

    def launched(self, core: Core, meeting: Meeting) -> None:
        """A core has launched the graph for which it met the others."""
        with self._changed:
            core.meeting = meeting
            meeting.launched += 1
            self.progress = time.monotonic()
            self._changed.notify_all()

    def all_have_launched(self, core: Core) -> bool:
        """Wait until the others have launched what this core has launched too.

        Its device cannot be waited for earlier: if they launch something else it never ends.

        Returns:
            False if the run is over instead.
        """
        with self._changed:
            while core.meeting is not None and core.meeting.launched < len(self.numbers):
                if self.failure is not None:
                    return False
                self._changed.wait()
        return self.failure is None

    def _compare_tags(self, meeting: Meeting) -> None:
        found = tags_differ(meeting.brought)
        if found is not None and found[0] not in self._said and len(self._said) < MOST_SENTENCES:
            self._said.add(found[0])
            standard("stderr").write(f"{found[0]}\n")
            self.tell_once("tags-differ", message=found[0], **found[1])

    def _compare_graphs(self, meeting: Meeting) -> bool:
        """Whether the cores may go on with the graphs that they have brought. Holds the lock."""
        if not all(isinstance(one, Pending) for one in meeting.brought.values()):
            return True
        launch = not next(iter(meeting.purposes.values())).startswith(BEFORE)
        try:
            found = of_graphs(self, meeting, launch=launch)
        except Exception as error:
            self.tell("graphs-not-compared", error=error)
            return True
        if found is None:
            return True
        if found.stops:
            self._end(found.event, found.message, found.facts)
            return False
        meeting.apart = True
        key = f"{found.facts['what']} {found.facts['place']}"
        if found.message and key not in self._said and len(self._said) < MOST_SENTENCES:
            self._said.add(key)
            standard("stderr").write(f"{found.message}\n")
            self.tell_once(found.event, message=found.message, **found.facts)
        return True

    def differ(self, core: Core, meeting: Meeting, other: int) -> None:
        """Cores that met for one launch have launched different graphs.

        Args:
            core: The one that has come to the launch last.
            meeting: What they met for.
            other: The one with the new graph; if it is the one that came last, it may hang in the
                launch of it.
        """
        first = meeting.first
        who = "the cores build different graphs"
        if first is not None and first != core.number:
            who = f"{names(sorted((core.number, first)))} build different graphs"
        message = (
            f"xladoctor: {who} for the same launch"
            f"{user_place(core.thread)}, and they hold a collective. {ON_A_TPU}"
        )
        with self._changed:
            self.grace, self.stuck = GRACE_IN_COLLECTIVE_SECONDS, True
            facts: dict[str, Any] = {
                "what": None,
                "stopped": True,
                "cores": [],
                "new_in": other,
                "place": user_frame(core.thread),
            }
            self._end("graphs-differ", message, facts)

    def _end(self, kind: str, message: str, facts: dict[str, Any]) -> None:
        if self.failure is None:
            # Told first: from the failure on the watch may end the process at any time.
            # Where each core stands is for its own process to tell.
            (self.tell if kind in STANDSTILLS else self.tell_once)(kind, message=message, **facts)
            self.failed_by = kind
            self.failed_at = time.monotonic()
            self.failure = (None, RuntimeError(message))
            self._changed.notify_all()


def _ignore(kind: str, facts: dict[str, Any]) -> None:
    """The default listener."""
