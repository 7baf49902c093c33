"""Listens at the points of one process and writes what each core does.

It sits outermost (RECORD): it notes the user's line, times the whole passage and books it to the
core's account. See ``account.py`` for the books, ``sites.py`` for the lines, ``writer.py`` for
the files.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from . import tensors, xla
from .account import Account, Accounts
from .failures import Failures
from .graphs import Graphs
from .loaders import Loaders
from .points import (
    COLLECTIVE,
    CORE,
    FALLBACK,
    FEED,
    LAUNCH,
    LOADER,
    MADE,
    READ,
    RECORD,
    RENDEZVOUS,
    START,
    STEP,
    UPLOAD,
    WAIT,
    Call,
    Points,
)
from .process import Process, at_end_of_child, see_sudden_exit, see_uncaught
from .sharding import Shardings
from .sites import Sites
from .steps import Steps
from .tensors import MORE_INPUTS, crossing_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from .account import OpenFallback
    from .writer import Writer

#: What the last look of a device at what it has compiled is called.
AT_END = "end"

#: What a read or a fallback books its time to, by what it triggers.
_PARTS = {"read": "host_sync", "fallback": "fallback"}


class Recorder:
    """What one process records.

    Args:
        writer: The process's folder.
        simulated_cores: How many cores are simulated; None on real devices.
        device: The type of the devices' tensors.
    """

    def __init__(self, writer: Writer, *, simulated_cores: int | None, device: str = "xla") -> None:
        self.process = Process(writer, simulated_cores, device)
        self._device = device
        #: Gives the names of graphs that were compiled in a launch that has not come back.
        self.left_over: Callable[[], list[str]] = list
        self._simulated_cores = simulated_cores
        self._loaders = Loaders()
        self._shardings = Shardings(self.process, self._feed_of, self._start)
        self._begin()
        atexit.register(self._end)

    def _begin(self) -> None:
        self._accounts = Accounts()
        self._sites = Sites(self.process.write)
        self._failures = Failures(self.process, self._accounts, self._sites)
        simulated = self._simulated_cores is not None
        self._graphs = Graphs(self.process.write, self._sites, simulated, self._device)
        self._lock = threading.Lock()
        self._closed = False
        self._steps = Steps(self.process)
        self._shardings.begin(self._sites)
        self._fallbacks_counted: dict[str, int] = {}
        self._waits_at: dict[int, int] = {}  # site -> its reads and fallbacks
        self._stepped_at: dict[int, int] = {}  # core -> where its optimizer steps, in eager mode

    def start_over(self) -> None:
        """Become the recorder of a forked child."""
        self.process.start_over()
        self._begin()

    def leave_out(self, fallbacks: dict[str, int]) -> None:
        """Take runs on the CPU that were before the record for counted."""
        self._fallbacks_counted.update(fallbacks)

    def install(self, points: Points) -> None:
        """Put the recorder around the points."""
        self._shardings.install(points)
        for point, function in (
            (START, self._starting),
            (CORE, self._core),
            (FEED, self._feed),
            (LAUNCH, self._launch),
            (READ, self._read),
            (FALLBACK, self._fallback),
            (WAIT, self._wait),
            (RENDEZVOUS, self._rendezvous),
            (COLLECTIVE, self._collective),
            (LOADER, self._loader),
            (MADE, self._made),
            (UPLOAD, self._upload),
            (STEP, self._step),
        ):
            points.around(point, RECORD, function)

    def ended_by(self, error: BaseException) -> None:
        """Write what an exception tells that ends the program before it uses a device."""
        self._shardings.failed(error)

    def on_event(self, kind: str, facts: dict[str, Any]) -> None:
        """What the simulation tells (see ``simulate.install``); never raises."""
        with contextlib.suppress(Exception):
            if kind == "process-ended":
                self.close()
            elif kind == "interrupted":
                self.process.note("interrupted from the keyboard (SIGINT)")
            elif kind == "not-obeyed":
                self.process.note(str(facts["message"]))
            elif kind == "graphs-not-compared":
                self.process.hook_off("comparison of the cores' graphs", facts["error"])
            elif kind == "not-compared":
                self.process.hook_off("comparison of the cores' weights", facts["error"])
            else:
                core = facts.pop("new_in", None)
                self._failures.told(kind, facts)
                try:
                    self._tell_unfinished(core)
                except Exception as error:
                    self.process.hook_off("a graph whose launch hangs", error)

    def _tell_unfinished(self, core: int | None) -> None:
        """A core may hang in the launch of a new graph: what it has compiled is told all the same.

        Its launch is the end of a step, where the cores meet.
        """
        account = self._accounts.by_core.get(-1 if core is None else core)
        frame = None if account is None else sys._current_frames().get(account.owner)
        if account is None or frame is None:
            return
        trigger = _trigger(account, Call(LAUNCH, "_xla_step_marker", core))
        for name in self.left_over():
            self._graphs.unfinished(account, name, trigger, self._sites.here(frame))

    def _start(self) -> None:
        if self.process.start():
            at_end_of_child(self.close)
            see_uncaught(self.failed)
            see_sudden_exit(self._left)

    def _left(self, code: int) -> None:
        if self.process.started and not self._closed:
            self._failures.left(code)

    # -- accounts -----------------------------------------------------------------------------
    def _account(self, call: Call) -> tuple[Account, bool] | None:
        """The core's account, and whether this thread may open spans in it.

        Threads that only help a core (loaders) run at the same time as the core itself: what they
        do is counted, but their time is not the core's. Autograd's threads are different: the
        core waits for them.
        """
        core = call.core
        if core is None:
            if threading.current_thread() is not threading.main_thread():
                return None
            core = 0
        thread = threading.get_ident()
        account, new = self._accounts.of(core, thread)
        if new:
            self._start()
            self.process.write({"e": "core-start", "core": core, "t": account.began})
        own = thread == account.owner or _in_autograd_thread()
        if own and account.open_fallback is not None and call.what != MORE_INPUTS:
            account.end_fallback(account.open_fallback, seen=False)
        return account, own

    def _site(self, account: Account, frame: Any) -> int:
        thread = account.owner
        return self._sites.here(frame, None if threading.get_ident() == thread else thread)

    def _feed_of(self, core: int | None) -> dict[str, Any] | None:
        account = self._accounts.by_core.get(0 if core is None else core)
        feed = None if account is None else account.feed
        return None if feed is None or feed.over else feed.row(self._sites)

    # -- points -------------------------------------------------------------------------------
    def _starting(self, _call: Call, proceed: Callable[[], Any]) -> Any:
        self._sites.cores_start(sys._getframe(1))
        return proceed()

    def _core(self, call: Call, proceed: Callable[[], Any]) -> Any:
        core = call.core if call.core is not None else 0
        self._start()
        account, new = self._accounts.of(core, threading.get_ident())
        if new:
            self.process.write({"e": "core-start", "core": core, "t": account.began})
        account.owner = threading.get_ident()
        failed = True
        try:
            result = proceed()
            failed = False
        except SystemExit as error:
            failed = error.code not in (None, 0)
            raise
        except Exception as error:
            self._failures.error(account, error)
            raise
        else:
            return result
        finally:
            self._end_core(account, failed=failed)

    def _launch(self, call: Call, proceed: Callable[[], Any]) -> Any:
        found = self._account(call)
        if found is None:
            return proceed()
        account, own = found
        if not own:
            return proceed()
        began = time.monotonic()
        depth = account.enter("launch")
        try:
            return proceed()
        finally:
            try:
                self._graphs_ended(account, call, _trigger(account, call), began)
            finally:
                account.leave(depth)

    def _read(self, call: Call, proceed: Callable[[], Any]) -> Any:
        return self._to_host(call, proceed, "read")

    def _fallback(self, call: Call, proceed: Callable[[], Any]) -> Any:
        return self._to_host(call, proceed, "fallback")

    def _to_host(self, call: Call, proceed: Callable[[], Any], trigger: str) -> Any:
        found = self._account(call)
        if found is None:
            return proceed()
        account, own = found
        if account.in_rendezvous:
            return proceed()  # torch_xla's own exchange, or the simulation's
        site = self._site(account, sys._getframe(1))
        began = time.monotonic()
        part = _PARTS[trigger]
        before = account.spent(part)
        depth = account.enter(part) if own else None
        account.reads.append([part, 0, 0])
        result = None
        try:
            result = proceed()
        finally:
            _, compiled, ran = account.reads.pop()
            if call.facts.get("executed"):
                ran += call.facts["executed"]
                compiled += self._graphs_ended(account, call, trigger, began, of_launch=False)
            elif call.facts.get("compile_seconds"):
                # The device has compiled operations that were queued, not this read.
                account.move(part, "compile", call.facts["compile_seconds"])
            seconds = time.monotonic() - began
            if depth is not None:
                # What the step's parts say: without compilations, which are counted as such, and
                # without what only the simulation costs.
                fallback = self._goes_on(account, depth, site, call, result)
                if fallback is None:
                    account.leave(depth)
                spent = account.spent(part) if fallback is None else fallback.fetched
                seconds = max(0.0, spent - before)
            crossed = crossing_tensors(call)
            self._waits_at[site] = self._waits_at.get(site, 0) + 1
            if trigger == "read":
                account.add_sync(site, call.what, seconds, compiled, ran, crossed)
            else:
                self._count_fallback(account, site, call.what, seconds, crossed)
        return result

    def _count_fallback(
        self, account: Account, site: int, what: str, seconds: float, crossed: int
    ) -> None:
        if what == MORE_INPUTS:
            account.add_fallback_time(site, seconds, crossed)
            return
        account.add_fallback(site, what, seconds, crossed)
        with self._lock:
            self._fallbacks_counted[what] = self._fallbacks_counted.get(what, 0) + 1

    @staticmethod
    def _goes_on(
        account: Account, depth: int, site: int, call: Call, inputs: Any
    ) -> OpenFallback | None:
        """The fallback whose inputs are here, if its end (results sent) will be seen."""
        if call.point != FALLBACK or call.what == MORE_INPUTS or not inputs:
            return None
        fallback = account.keep_fallback_open(depth, site, call.what)
        if tensors.when_gone(inputs, lambda: account.end_fallback(fallback)):
            return fallback
        account.open_fallback = None
        return None

    def _wait(self, call: Call, proceed: Callable[[], Any]) -> Any:
        return self._timed(call, proceed, "execute")

    def _loader(self, call: Call, proceed: Callable[[], Any]) -> Any:
        found = self._account(call)
        if found is None or not found[1]:
            return proceed()
        account = found[0]
        self._steps.next_batch(account)
        frame = sys._getframe(1)
        depth = account.enter("input_wait")
        batch = None
        try:
            batch = proceed()
        finally:
            account.leave(depth)
            of_device = call.what == "ParallelLoader"
            if of_device:
                account.has_batch = batch is not None
            account.feed = self._loaders.gave(
                account.feed, next(iter(call.args), None), batch=batch is not None,
                loop=lambda: self._site(account, frame),
            )  # fmt: skip
        return batch

    def _made(self, call: Call, proceed: Callable[[], Any]) -> Any:
        self._loaders.made(call.args[0], self._sites.frames(sys._getframe(1)))
        return proceed()

    def _feed(self, call: Call, proceed: Callable[[], Any]) -> Any:
        try:
            return proceed()
        except Exception as error:
            # torch_xla ends the core's loop then, as if the data were at an end.
            found = self._account(call)
            if found is not None and not found[0].ended:
                self._failures.error(found[0], error, feeding=True)
            raise

    def _upload(self, call: Call, proceed: Callable[[], Any]) -> Any:
        found = self._account(call)
        if found is not None and not found[0].in_rendezvous:
            found[0].add_upload(crossing_tensors(call))
        return self._timed(call, proceed, "transfer")

    def _rendezvous(self, call: Call, proceed: Callable[[], Any]) -> Any:
        found = self._account(call)
        if found is None:
            return proceed()
        account = found[0]
        account.in_rendezvous += 1
        try:
            return self._timed(call, proceed, "core_wait")
        finally:
            account.in_rendezvous -= 1
            if call.facts.get("graphs"):  # what the simulation has put an exchange in memory for
                self._graphs.ended(
                    account, call, "sync", self._site(account, sys._getframe(1)), 0.0
                )

    def _collective(self, call: Call, proceed: Callable[[], Any]) -> Any:
        try:
            return proceed()
        finally:
            waited = call.facts.get("waited", 0.0)  # for other cores, in the simulation
            found = self._account(call) if waited else None
            if found is not None and found[1] and not found[0].reads:
                found[0].move("trace", "core_wait", waited)

    def _timed(self, call: Call, proceed: Callable[[], Any], part: str) -> Any:
        found = self._account(call)
        if found is None or not found[1]:
            return proceed()
        depth = found[0].enter(part)
        try:
            return proceed()
        finally:
            if call.facts.get("compile_seconds"):
                found[0].move(part, "compile", call.facts["compile_seconds"])
            found[0].leave(depth)

    def _step(self, call: Call, proceed: Callable[[], Any]) -> Any:
        found = self._account(call)
        if found is not None and not found[0].marked:
            account = found[0]
            frame = sys._getframe(1)
            self._steps.optimizer(account)
            account.add_optimizer_step(
                id(next(iter(call.args), None)), lambda: self._site(account, frame)
            )
            result = proceed()
            if call.facts.get("eager"):
                self._eager_step(account, call)
            return result
        return proceed()

    def _eager_step(self, account: Account, call: Call) -> None:
        """In eager mode nothing is left to run when the optimizer has stepped."""
        account.book()
        account.move("trace", "compile", call.facts["compile_seconds"])
        site = self._stepped_at[account.core] = self._site(account, sys._getframe(1))
        self._graphs.eager(account, call, site)
        self._steps.over(account)

    def compiled(
        self, call: Call, count: int, seconds: float | None, steps: int, *, in_last_step: bool
    ) -> None:
        """A device that compiles operations by themselves tells what it has compiled.

        Args:
            call: At which it has told.
            count: Of compiled operations.
            seconds: That each took, on average; None if that is not known.
            steps: Ends of steps since the device was last waited for.
            in_last_step: Whether they are of the step that is over, and not of the one that runs.
        """
        found = self._account(call)
        if found is not None:
            account = found[0]
            here = self._site(account, sys._getframe(1))
            # Without a step since the last wait it is something else: an evaluation, as a rule.
            site = self._stepped_at.get(account.core, here) if steps else here
            step = account.steps if in_last_step and account.steps else None
            before = account.runs.get(site, 0) - steps
            if call.what == AT_END:
                before = 0  # whose they are is not known: no line has waited for them
            elif call.point != WAIT:
                # What a line waits for that never waited before is new, however late it comes.
                waited = self._waits_at.get(here, 0)
                before = min(before, waited) if steps else waited
            self._graphs.compiled(account, count, seconds, site, step, (max(0, before), steps))

    def step_over(self) -> None:
        """The program itself says that a step is over: its optimizers' steps count no longer."""
        found = self._account(Call(STEP, "xladoctor.step", xla.current_core()))
        if found is None:
            return
        self._steps.marked(found[0])

    def _graphs_ended(
        self, account: Account, call: Call, trigger: str, began: float, *, of_launch: bool = True
    ) -> int:
        """Book what the meter saw; returns how many graphs were new for this core."""
        site = self._site(account, sys._getframe(1))
        new, waited = self._graphs.ended(account, call, trigger, site, time.monotonic() - began)
        compiling = call.facts.get("compile_seconds", 0.0)
        if not of_launch:
            account.move(_PARTS[trigger], "compile", compiling)
        else:
            # A core that waited while another compiled the same graph would have compiled it
            # itself in a process of its own.
            simulation = call.facts.get("waited", 0.0)
            compiling += min(simulation, waited)
            if account.reads:
                account.divide_launch(compiling, 0.0, simulation, rest=account.reads[-1][0])
                account.reads[-1][1] += new
                account.reads[-1][2] += len(call.facts.get("graphs", ()))
            else:
                executing = call.facts.get("execute_seconds", 0.0)
                account.divide_launch(compiling, executing, simulation)
        if trigger in _PARTS:
            account.read_since_step = True
        elif call.what == "_xla_step_marker":
            self._steps.marker(account)
        return new

    # -- the end ------------------------------------------------------------------------------
    def _end_core(self, account: Account, *, failed: bool) -> None:
        if not account.ended:
            if account.open_fallback is not None:
                account.end_fallback(account.open_fallback, seen=False)
            self._graphs.write_shared(account.core)
            self._steps.end_core(account, failed=failed)

    def failed(self, error: BaseException) -> None:
        """This thread's work ends in an error; cores with a main function have told already."""
        for account in list(self._accounts.by_core.values()):
            if not account.ended and account.owner == threading.get_ident():
                self._failures.error(account, error)
                self._end_core(account, failed=True)

    def _end(self) -> None:
        """The process is at its end: the other exit handlers have run, for they came later."""
        self.close()
        self.process.mark_ending()

    def close(self) -> None:
        """End the cores that are still open and write the last rows; never raises."""
        try:
            if not self.process.started or self._closed:
                return
            self._closed = True
            with contextlib.suppress(Exception):
                self.process.note_unattributed(self._fallbacks_counted)
            for account in list(self._accounts.by_core.values()):
                self._end_core(account, failed=False)
            self.process.write_metrics()
            self.process.write({"e": "end", "t": time.monotonic()})
        except Exception:
            pass


def _trigger(account: Account, call: Call) -> str:
    if account.reads:
        return "read" if account.reads[-1][0] == "host_sync" else "fallback"
    if call.what != "_xla_step_marker":
        return "library"
    if account.pending:
        return "step"
    return "loader" if account.waits_for_input or xla.in_device_loader() else "sync"


def _in_autograd_thread() -> bool:
    """Whether this thread was started by torch's C++ and runs a backward pass."""
    return isinstance(threading.current_thread(), threading._DummyThread)
