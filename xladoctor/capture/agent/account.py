"""What one core does, added up between two step boundaries."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from .rows import NO_PARTS, Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from .loaders import Feed

#: Rows of one step each; after these, a row covers more and more steps, so that a run of
#: 100,000 steps writes about 3,000 rows for a core.
SINGLE_STEPS = 1000

#: A row that covers several steps is still written this often (seconds), for a run that is killed,
#: or after this share of the run, so that a week of it fills no disk: what a kill loses.
LONGEST_WAIT, LONGEST_SHARE = 10.0, 0.01

#: What a read was: it compiled a graph, ended and ran one that was known, waited for the device, or
#: found its value ready.
KINDS_OF_READ = ("compiled", "cut", "waited", "free")
#: A read that took less (seconds) found its value ready: fetching one takes 0.1 to 0.2 ms.
FREE_SECONDS = 0.001

#: How many places that cut the graph of one step are remembered.
MOST_CUTS = 16


class OpenFallback(NamedTuple):
    """A fallback that computes: its span, its place, and what "fallback" had when that began."""

    depth: int
    site: int
    operation: str
    fetched: float


class Account:
    """The books of one core: where its time goes and what it counts.

    Time is always booked to the innermost open span, or to "trace" (Python and the tracing that
    it does) when none is open. So the parts add up to the wall time by construction.
    """

    def __init__(self, core: int, owner: int) -> None:
        self.core = core
        self.owner = owner
        self.ended = False
        self.began = self._mark = self.row_began = self._step_began = time.monotonic()
        self._spans: list[str] = ["trace"]
        self.steps = 0
        self.pending = 0  # optimizer steps since the last boundary
        self.marked = False  # the program says itself when a step is over
        # Iterations of a loop that no optimizer ends: the steps of a core that has no others.
        self.iterations = 0
        self.iterations_end_at_markers = False
        self.ran_since_iteration = False
        self.has_batch = False  # the device loader has given a batch, and is not at its end
        self.feed: Feed | None = None  # the loader whose batches it gets, or got last
        # Optimizer -> its steps in the graph that is being traced; the site of a second one.
        self._in_graph: dict[int, int] = {}
        self._stepped_at: int | None = None
        self.read_since_step = False  # a read has ended a graph since the last optimizer step
        # Open reads, innermost last: [part, new graphs, graphs that ran].
        self.reads: list[list[Any]] = []
        self.in_rendezvous = 0
        # A fallback whose inputs have been fetched and whose end has not been seen.
        self.open_fallback: OpenFallback | None = None
        self.cuts: list[int] = []  # where reads and fallbacks have cut this step's graph
        self.runs: dict[int, int] = {}  # site -> graphs that ended there
        self.pieces: dict[int, int] = {}  # the same since the last optimizer step
        self.seen: set[str] = set()  # graphs this core has run
        self._first_unwritten = 1
        self.turns_unwritten = 0
        self._clear()

    def _clear(self) -> None:
        self._parts = NO_PARTS.copy()
        self._syncs: Table = {}
        self._fallbacks: Table = {}
        self._launches: Table = {}
        self._transfers = {"to_device": 0, "from_device": 0}
        self._held: tuple[int, int | None, str] | None = None
        self._fastest: float | None = None
        self._slowest: float | None = None

    @property
    def booked_until(self) -> float:
        """The moment up to which time is booked."""
        return self._mark

    # -- time ---------------------------------------------------------------------------------
    def enter(self, part: str) -> int:
        """Open a span; returns what :meth:`leave` needs to close it."""
        self.book()
        self._spans.append(part)
        return len(self._spans) - 1

    def leave(self, depth: int) -> None:
        """Close the span, and any inside it that a failed hook left open."""
        self.book()
        del self._spans[depth:]

    @property
    def waits_for_input(self) -> bool:
        """Whether a loader is open."""
        return "input_wait" in self._spans

    def book(self) -> None:
        """Book the time up to now to the innermost open span."""
        now = time.monotonic()
        self._parts[self._spans[-1]] += now - self._mark
        self._mark = now

    def divide_launch(
        self, compiling: float, executing: float, simulation: float, rest: str = "trace"
    ) -> None:
        """Give the time of the launch that is about to close to its parts.

        Each is cut to what is left, so the sum stays the measured one.

        Args:
            compiling: Seconds of compilation.
            executing: Seconds that the launch waited for the device.
            simulation: Seconds that the launch waited for other cores.
            rest: The part that gets what is left: "trace" for a step's end, the part of the read
                if the launch is part of one.
        """
        self.book()
        left = self._parts["launch"]
        self._parts["launch"] = 0.0
        for part, wanted in (
            ("compile", compiling),
            ("execute", executing),
            ("core_wait", simulation),
        ):
            share = min(left, max(0.0, wanted))
            self._parts[part] += share
            left -= share
        self._parts[rest] += left

    def move(self, source: str, target: str, seconds: float) -> None:
        """Give a share of one part to another, at most what the part has."""
        self.book()
        share = min(self._parts[source], max(0.0, seconds))
        self._parts[source] -= share
        self._parts[target] += share

    def spent(self, part: str) -> float:
        """Seconds booked to a part since the last row."""
        self.book()
        return self._parts[part]

    # -- counts -------------------------------------------------------------------------------
    def add_sync(
        self, site: int, what: str, seconds: float, compiled: int, ran: int = 0, tensors: int = 1
    ) -> None:
        """One read by the user's program.

        Args:
            site: Where.
            what: How ("item", "cpu").
            seconds: How long the host waited, compilations left out.
            compiled: New graphs that it had compiled.
            ran: Graphs that it had run, new ones included.
            tensors: How many tensors it brought to the host.
        """
        entry = self._syncs.setdefault((site, what), [0, 0.0, 0, dict.fromkeys(KINDS_OF_READ, 0)])
        entry[0] += 1
        entry[1] += seconds
        entry[2] += compiled
        if compiled:
            kind = "compiled"
        elif ran:
            kind = "cut"
        else:
            kind = "waited" if seconds > FREE_SECONDS else "free"
        entry[3][kind] += 1
        self._transfers["from_device"] += tensors

    def add_fallback(self, site: int, operation: str, fetching: float, tensors: int = 1) -> None:
        """One run of an operation on the CPU.

        Args:
            site: Where it was called.
            operation: What was computed.
            fetching: Seconds for which its inputs were fetched.
            tensors: How many were fetched.
        """
        entry = self._fallbacks.setdefault((site, operation), [0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += fetching
        entry[2] += fetching
        self._transfers["from_device"] += tensors

    def add_fallback_time(self, site: int, fetching: float, tensors: int = 0) -> None:
        """More inputs of a fallback that has been counted already."""
        self._transfers["from_device"] += tensors
        for (place, _), entry in self._fallbacks.items():
            if place == site:
                # While its end is awaited, that end brings the whole of its time.
                entry[1] += fetching if self.open_fallback is None else 0.0
                entry[2] += fetching
                return

    def keep_fallback_open(self, depth: int, site: int, operation: str) -> OpenFallback:
        """Leave a fallback's span open when its inputs are there: it goes on to compute.

        Args:
            depth: What :meth:`enter` gave.
            site: Where it was called.
            operation: What is computed.

        Returns:
            What :meth:`end_fallback` takes.
        """
        self.open_fallback = OpenFallback(depth, site, operation, self.spent("fallback"))
        return self.open_fallback

    def end_fallback(self, fallback: OpenFallback, *, seen: bool = True) -> None:
        """Close the span of a fallback, if it is open still.

        Args:
            fallback: What :meth:`keep_fallback_open` gave.
            seen: Whether it has just ended. If not, the core went on at an unknown moment: only
                the fetching is known, and the time since then is given to what is around it.
        """
        if self.open_fallback is not fallback:
            return
        self.open_fallback = None
        around = self._spans[fallback.depth - 1] if fallback.depth else "trace"
        self.leave(fallback.depth)
        seconds = max(0.0, self._parts["fallback"] - fallback.fetched)
        if not seen:
            self.move("fallback", around, seconds)
            return
        entry = self._fallbacks.get((fallback.site, fallback.operation))
        if entry is not None:
            entry[1] += seconds

    def add_launch(self, site: int, trigger: str, seconds: float) -> int:
        """One graph that ended; returns how many had ended at this site before."""
        self.graph_over(trigger)
        entry = self._launches.setdefault((site, trigger), [0, 0.0])
        entry[0] += 1
        entry[1] += seconds
        before = self.runs.get(site, 0)
        self.runs[site] = before + 1
        self.ran_since_iteration = True
        self.pieces[site] = self.pieces.get(site, 0) + 1
        return before

    def add_cut(self, site: int, trigger: str) -> None:
        """A graph has ended: one more piece of the step, or the last of them."""
        if trigger not in ("read", "fallback"):
            self.cuts.clear()
        elif site not in self.cuts and len(self.cuts) < MOST_CUTS:
            self.cuts.append(site)

    def add_optimizer_step(self, optimizer: int, site: Callable[[], int]) -> None:
        """An optimizer has stepped; its work belongs to the graph that is being traced.

        Args:
            optimizer: Its identity: several optimizers may step once each in one graph.
            site: Gives the place; asked only when one steps again before a graph has ended.
        """
        count = self._in_graph[optimizer] = self._in_graph.get(optimizer, 0) + 1
        if count == 2:
            self._stepped_at = site()

    def graph_over(self, trigger: str) -> None:
        """What was traced has ended: remember how many steps of an optimizer one graph held."""
        most = max(self._in_graph.values(), default=0)
        self._in_graph.clear()
        if most > 1 and (self._held is None or most > self._held[0]):
            self._held = (most, self._stepped_at, trigger)

    def add_upload(self, count: int = 1) -> None:
        """Tensors that went to the device."""
        self._transfers["to_device"] += count

    # -- steps --------------------------------------------------------------------------------
    @property
    def current_step(self) -> int:
        """The step that is under way, from 1; after an optimizer step it is still that step."""
        return self.steps + 1 if self.pending == 0 else self.steps + self.pending

    @property
    def current_iteration(self) -> int | None:
        """The iteration that is under way, from 1; None once there are steps."""
        return None if self.steps or self.pending else self.iterations + 1

    def step_took(self, count: int) -> None:
        """Steps (or an iteration) are over: note how long one of them took.

        Args:
            count: How many are over at once; their mean counts.
        """
        self.book()
        if count > 0:
            seconds = (self._mark - self._step_began) / count
            self._fastest = seconds if self._fastest is None else min(self._fastest, seconds)
            self._slowest = seconds if self._slowest is None else max(self._slowest, seconds)
        self._step_began = self._mark

    def count_marks(self) -> None:
        """From now on what the program marks are the core's steps, and nothing else is."""
        self.marked = True
        self.steps = self.pending = 0
        self._first_unwritten = 1

    def end_of_iteration(self, *, at_marker: bool) -> bool:
        """Whether a loop without an optimizer ends an iteration here; counts it if so.

        A program that ends its graphs itself (at markers) says best where its iterations end; only
        in one that never does, the loader's next batch says that the last iteration is over.
        """
        if not self.ran_since_iteration or self.steps or self.pending or self.marked:
            return False
        if not at_marker and self.iterations_end_at_markers:
            return False
        self.iterations_end_at_markers = at_marker
        self.ran_since_iteration = False
        self.iterations += 1
        self.turns_unwritten += 1
        self.step_took(1)
        return True

    def row_due(self) -> bool:
        """Whether the steps that are done should be written now."""
        count = self.steps or self.iterations
        done = self.steps - self._first_unwritten + 1 if self.steps else self.turns_unwritten
        if done <= 0:
            return False
        if count <= SINGLE_STEPS:
            return True
        batch = 10 ** len(str((count - 1) // SINGLE_STEPS))
        longest = max(LONGEST_WAIT, LONGEST_SHARE * (self._mark - self.began))
        return done >= batch or self._mark - self.row_began > longest

    def take_row(self, *, after_last: bool = False) -> Row | None:
        """What was booked since the last row; the books start anew. None if nothing was."""
        self.book()
        steps: tuple[int, int] | None = None
        if self.steps >= self._first_unwritten:
            steps = (self._first_unwritten, self.steps)
            self._first_unwritten = self.steps + 1
        elif not after_last:
            return None
        row = Row(
            self.core,
            steps,
            (self.row_began, self._mark),
            self._parts,
            self._syncs,
            self._fallbacks,
            self._launches,
            self._transfers,
            self.turns_unwritten,
            self._held,
            self._fastest,
            self._slowest,
        )
        self.turns_unwritten = 0
        self.row_began = self._mark
        self._clear()
        return row


class Accounts:
    """The accounts of all cores of one process, by core and by thread."""

    def __init__(self) -> None:
        self.by_core: dict[int, Account] = {}
        self._lock = threading.Lock()

    def of(self, core: int, owner: int) -> tuple[Account, bool]:
        """The core's account, and whether it is new (the core starts now)."""
        account = self.by_core.get(core)
        if account is not None and not account.ended:
            return account, False
        with self._lock:
            account = self.by_core.get(core)
            if account is not None and not account.ended:
                return account, False
            account = self.by_core[core] = _continued(account, core, owner)
            return account, True


def _continued(before: Account | None, core: int, owner: int) -> Account:
    """A core that starts again (a second launch in one process) goes on counting its steps."""
    account = Account(core, owner)
    if before is not None:
        account.steps, account.marked = before.steps, before.marked
        account._first_unwritten = before.steps + 1
        account.iterations, account.iterations_end_at_markers = (
            before.iterations,
            before.iterations_end_at_markers,
        )
        account.runs, account.seen = before.runs, before.seen
    return account
