"""The cores of one launch when they are spread over several processes.

A meeting is complete when the cores of all processes are there. When all of this process are there,
or have ended, it says so to the others and hears the same of them (``link``); every process then
decides from the same facts, and so in the same way. That is done in a thread of its own: the cores
only wait.
"""

from __future__ import annotations

import dataclasses
import gc
import pickle
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from .cores import STANDSTILLS, CoreGroup, Meeting
from .deadlock import stands
from .divergence import Pending, groups_of
from .link import Link, LinkBrokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from .cores import Core
    from .divergence import Collective
    from .hosts import Share
    from .places import Place

#: Characters of graphs that are sent to be compared in words; longer ones are cut.
_MOST_TEXT = 20_000_000
#: Seconds that a thread gets to end.
_PATIENCE = 5.0
#: Seconds between two looks for a value that another core sends.
_POLL = 0.01


@dataclasses.dataclass(slots=True)
class Standing:
    """Where a core of another process stands, as that process has said; see ``cores.Core``."""

    number: int
    place: Place | None
    waits_for: str | None
    steps: int
    ended: bool
    again: bool
    purpose: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Brought:
    """What a core of another process has brought of a graph; see ``divergence.Pending``."""

    graph: str | None
    waits: int | None
    device: str | None
    reads: tuple[tuple[str, Place | None], ...]
    collectives: tuple[Collective, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Sent:
    """What a process says of a meeting."""

    standings: dict[int, Standing]
    purposes: dict[int, str]
    brought: dict[int, Any]
    compared: list[Any]


class _OverError(Exception):
    """The run is over; nobody waits for the others any more."""


class Pod(CoreGroup):
    """The cores of one launch in several processes; this one holds some of them.

    Args:
        share: Which ones.
        launch: Which launch of the program it is.
        timeout: Seconds after which another process that says nothing is given up.
        on_event: As for :class:`CoreGroup`.

    Raises:
        LinkBrokenError: The others did not come.
    """

    def __init__(
        self,
        share: Share,
        launch: str,
        timeout: float,
        on_event: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.share = share
        super().__init__(share.world, on_event, range(share.first, share.first + share.cores))
        #: Monotonic time of the newest progress in another process.
        self.heard = time.monotonic()
        #: What the cores of this process have to compare with others', see ``agreement``.
        self.compared: list[Any] = []
        self.on_compared: Callable[[list[Any]], None] | None = None
        self._posted: Meeting | None = None
        self._number = 0
        self._sent: dict[Hashable, int] = {}
        self._received: dict[Hashable, int] = {}
        self._told_progress: dict[int, float] = {}
        self._standings: dict[int, Standing] = {}
        self._rounds: queue.SimpleQueue[Meeting | None] = queue.SimpleQueue()
        self._through = threading.Event()
        self._timeout = timeout
        self.link = Link(share, launch, timeout, self._status)
        self.speaks = self.link.speaks
        self._thread = threading.Thread(target=self._meet_all, name="xladoctor-pod", daemon=True)
        self._thread.start()

    # -- what the group asks --------------------------------------------------------------
    @property
    def everyone(self) -> Mapping[int, Any]:
        """All cores of the run: those of this process, and where the others stood last."""
        found: dict[int, Any] = dict(self._standings)
        found.update(self.cores)
        return dict(sorted(found.items()))

    @property
    def purposes(self) -> Mapping[int, str]:
        """Core to what it has come for, of those that wait for the others."""
        theirs = {one.number: one.purpose for one in self._standings.values() if one.purpose}
        return theirs | self.meeting.purposes

    def _local_standings(self) -> dict[int, Standing]:
        here = self.meeting.purposes
        return {
            core.number: Standing(
                core.number,
                core.place,
                core.waits_for,
                core.steps,
                core.ended,
                core.again,
                here.get(core.number),
            )
            for core in list(self.cores.values())
        }

    def tell_once(self, kind: str, **facts: Any) -> None:
        """Report what all processes have found alike: by one of those that share a directory."""
        if self.speaks:
            self.tell(kind, **facts)

    def fail(self, number: int | None, error: BaseException, kind: str = "stopped") -> bool:
        """The run cannot go on, in no process."""
        first = super().fail(number, error, kind)
        if first:
            self.link.hurry()
        return first

    def last_words(self) -> None:
        """The process is about to end: let the others know how it stands."""
        self.link.tell_now()

    def give_up(self, error: BaseException) -> None:
        """An exchange with the others has failed; their own words tell more, if they come."""
        self.link.hear()
        self._hear_failures()
        words = f"xladoctor: {error}" if isinstance(error, LinkBrokenError) else (
            f"xladoctor: a collective between processes failed: {error!r}"
        )  # fmt: skip
        self.fail(None, RuntimeError(words))

    def look(self) -> None:
        """Whether the others are alive and at work; now and then."""
        self._hear_failures()
        gone = self.link.look()
        if gone is not None and self.failure is None:
            words = f"xladoctor: {gone}, and its cores are needed: the run is over"
            if self.fail(None, RuntimeError(words)):
                self.tell("stopped", message=words)

    def last_progress(self) -> float:
        """Monotonic time of the last progress of any core."""
        return max(self.progress, self.heard)

    def close(self) -> None:
        """The cores of this process have ended; the others still need what it knows."""
        super().close()
        began = time.monotonic()
        while not self._through.wait(0.1) and self.failure is None:
            self.look()
            if time.monotonic() - max(began, self.heard) > self._timeout:
                break
        self._rounds.put(None)
        self._thread.join(_POLL + _PATIENCE)  # see Link.close
        self.link.tell_now()
        self.link.close()

    def send(self, channel: Hashable, value: Any) -> None:
        """Put a value into a channel between two cores, of whichever processes."""
        with self._changed:
            turn = self._sent[channel] = self._sent.get(channel, 0) + 1
        self.link.client("channels").set(f"{channel}/{turn}", pickle.dumps(value))

    def receive(self, core: Core, channel: Hashable) -> Any:
        """Take the next value out of a channel, when there is one.

        Raises:
            CoreStopped: The run is over.
        """
        self.rooms.leave(core)
        with self._changed:
            core.waits_for, core.since = f"xm.recv on channel {channel}", time.monotonic()
            turn = self._received[channel] = self._received.get(channel, 0) + 1
        store = self.link.client("channels")
        try:
            while not store.check([f"{channel}/{turn}"]):
                self.check()
                time.sleep(_POLL)
            value = pickle.loads(store.get(f"{channel}/{turn}"))  # noqa: S301
        finally:
            core.waits_for = None
            self.progress = time.monotonic()
        self.rooms.enter(core)
        return value

    def offer(self, one: Any) -> None:
        """Bring something to the next meeting; see ``sketches``."""
        with self._changed:
            self.compared.append(one)

    # -- meetings -------------------------------------------------------------------------
    def _check_meeting(self) -> None:
        """Let the others know when all cores of this process are there. Holds the lock."""
        if self.failure is not None:
            return  # cores that end now are stopped
        meeting = self.meeting
        ended = sum(core.ended for core in self.cores.values())
        if self._posted is not meeting and len(meeting.purposes) + ended == len(self.numbers):
            self._posted = meeting
            self._rounds.put(meeting)

    def _meet_all(self) -> None:
        try:
            over = False
            while not over:
                meeting = self._rounds.get()
                over = meeting is None or self._meet_others(meeting)
            self._through.set()
        except _OverError:
            self._through.set()
        except Exception as error:
            self._through.set()
            self.give_up(error)

    def _meet_others(self, meeting: Meeting) -> bool:
        """One meeting of all processes; returns whether all cores have ended."""
        number, self._number = self._number, self._number + 1
        with self._changed:
            mine = _Sent(
                self._local_standings(),
                dict(meeting.purposes),
                {core: _to_send(one) for core, one in meeting.brought.items()},
                self.compared,
            )
            self.compared = []
        said = self.link.everyone(f"meeting/{number}", mine, self._check_over)
        self.link.forget(f"meeting/{number - 1}")
        if self.on_compared is not None:
            self.on_compared([one for sent in said.values() for one in sent.compared])
        theirs = {rank: sent for rank, sent in said.items() if rank != self.share.rank}
        for sent in theirs.values():
            self._standings.update(sent.standings)
        brought = {core: one for sent in theirs.values() for core, one in sent.brought.items()}
        pending = self._with_words(number, meeting, brought)
        ended = sorted(
            core for sent in said.values() for core, one in sent.standings.items() if one.ended
        )
        with self._changed:
            if self.failure is not None:
                raise _OverError
            if len(ended) == self.size:
                return True
            for sent in theirs.values():
                meeting.purposes.update(sent.purposes)
            meeting.brought.update(brought | pending)
            self._decide(meeting, ended)
        return False

    def _with_words(
        self, number: int, meeting: Meeting, brought: Mapping[int, Any]
    ) -> dict[int, Pending]:
        """The graphs of the other processes' cores, in words where they differ.

        Every process sees the same differences, so all of them ask, or none does.
        """
        mine = {core: one for core, one in meeting.brought.items() if isinstance(one, Pending)}
        theirs = {core: one for core, one in brought.items() if isinstance(one, Brought)}
        if not mine and not theirs:
            return {}
        everything: dict[int, Any] = {**mine, **theirs}
        graphs = {core: one.graph for core, one in everything.items()}
        counts = {core: _waiting(one) for core, one in everything.items()}
        texts: dict[int, tuple[str, str, str]] = {}
        if len(groups_of(graphs)) > 1 or len(groups_of(counts)) > 1:
            if len(groups_of(graphs)) == 1:
                gc.collect()  # see mismatch._by_what_waits
            first = {group[0] for group in groups_of({core: mine[core].graph for core in mine})}
            words = {
                core: (one.waiting(), *(_words(one) if core in first else ("", "", "")))
                for core, one in mine.items()
            }
            for said in self.link.everyone(f"words/{number}", words, self._check_over).values():
                for core, (waits, *text) in said.items():
                    counts[core], texts[core] = waits, (text[0], text[1], text[2])
            _share_words(texts, graphs)
        return {
            core: _Remote(
                one.graph,
                _giving(texts.get(core, ("", "", ""))[0]),
                _giving(texts.get(core, ("", "", ""))[2]),
                one.device,
                one.reads,
                one.collectives,
                counts[core],
                texts.get(core, ("", "", ""))[1],
            )
            for core, one in theirs.items()
        }

    def _check_over(self) -> None:
        if self.failure is not None:
            raise _OverError

    # -- signs of life --------------------------------------------------------------------
    def _status(self) -> dict[str, Any]:
        failure = self.failure
        return {
            "progress": self.progress,
            "failure": None if failure is None else (failure[0], _in_words(failure[1])),
            "failed_by": self.failed_by,
            "over": self._through.is_set(),
            "standings": self._local_standings(),
        }

    def _hear_failures(self) -> None:
        for peer in self.link.peers.values():
            facts = peer.facts
            if not facts:
                continue
            if facts["progress"] != self._told_progress.get(peer.rank):
                self._told_progress[peer.rank] = facts["progress"]
                self.heard = time.monotonic()
            if not facts["over"]:
                self._standings.update(facts["standings"])
            if facts["failure"] is not None and self.failure is None:
                number, words = facts["failure"]
                if number is not None:
                    words = (
                        f"xladoctor: core {number} failed in {self.link.name(peer.rank)}: {words}"
                    )
                # Told first: from the failure on the cores are no longer where they stood.
                stands_still = facts["failed_by"] in STANDSTILLS
                kind = facts["failed_by"] if stands_still else "stopped"
                self.tell(kind, message=words, **(stands(self) if stands_still else {}))
                self.fail(None, RuntimeError(words), facts["failed_by"])


@dataclasses.dataclass(frozen=True, slots=True)
class _Remote(Pending):
    """What a core of another process is about to launch."""

    waits: int | None = None
    whole: str = ""

    def waiting(self) -> int | None:
        """How many tensors of its device wait for a value."""
        return self.waits

    def whole_text(self) -> str:
        """The graphs of all of them."""
        return self.whole


def _to_send(one: Any) -> Any:
    if not isinstance(one, Pending):
        return one
    return Brought(one.graph, one.waiting(), one.device, one.reads, one.collectives)


def _waiting(one: Any) -> int | None:
    count: int | None = one.waits if isinstance(one, Brought) else one.waiting()
    return count


def _words(one: Pending) -> tuple[str, str, str]:
    return (
        one.text()[:_MOST_TEXT],
        one.whole_text()[:_MOST_TEXT],
        one.hlo()[:_MOST_TEXT],
    )


def _share_words(texts: dict[int, tuple[str, str, str]], graphs: Mapping[int, str | None]) -> None:
    """Cores with the same graph have the same words, of which one was sent from each process."""
    for group in groups_of(graphs):
        known = next((texts[core] for core in group if any(texts.get(core, ()))), None)
        for core in group:
            if known is not None and not any(texts.get(core, ())):
                texts[core] = known


def _giving(text: str) -> Callable[[], str]:
    def give() -> str:
        return text

    return give


def _in_words(error: BaseException) -> str:
    text = str(error)
    return text if isinstance(error, RuntimeError) and text.startswith("xladoctor: ") else (
        f"{type(error).__name__}: {text}"
    )  # fmt: skip
