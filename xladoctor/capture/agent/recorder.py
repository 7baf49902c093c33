"""Listens at the points of one process and writes what each core does.

It sits outermost (RECORD): it notes the user's line, times the whole passage and books it to the
core's account. See ``account.py`` for the books, ``sites.py`` for the lines, ``writer.py`` for
the files.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from . import xla
from .account import Account, Accounts
from .causes import Causes, shapes
from .points import (
    CORE,
    FALLBACK,
    LAUNCH,
    LOADER,
    READ,
    RECORD,
    RENDEZVOUS,
    STEP,
    UPLOAD,
    WAIT,
    Call,
    Points,
)
from .sites import Sites
from .writer import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .writer import Writer

#: Seconds between two writings of the metrics report (1 ms each) at step boundaries.
METRICS_EVERY = 5.0

#: The user's frames whose tensors may explain a new graph.
EXPLAINING_FRAMES = 3


class Recorder:
    """What one process records.

    Args:
        writer: The process's folder.
        simulated_cores: How many cores are simulated; None on real devices.
    """

    def __init__(self, writer: Writer, *, simulated_cores: int | None) -> None:
        self._writer = writer
        self._simulated_cores = simulated_cores
        self._early: list[dict[str, Any]] = []
        self._begin()
        atexit.register(self.close)

    def _begin(self) -> None:
        self._accounts = Accounts()
        self._sites = Sites(self._writer.row)
        self._causes: dict[int, Causes] = {}
        self._compile_seconds: dict[str, float] = {}
        self._lock = threading.Lock()
        self._started = self._closed = False
        self._metrics_written = 0.0
        self._told: list[BaseException] = []
        self._stopped: list[str] = []  # what the simulation said when it stopped the cores
        self._fallbacks_counted: dict[str, int] = {}

    def start_over(self) -> None:
        """Become the recorder of a forked child."""
        self._writer.start_over()
        self._begin()

    def install(self, points: Points) -> None:
        """Put the recorder around the points."""
        for point, function in (
            (CORE, self._core),
            (LAUNCH, self._launch),
            (READ, self._read),
            (FALLBACK, self._fallback),
            (WAIT, self._wait),
            (RENDEZVOUS, self._rendezvous),
            (LOADER, self._loader),
            (UPLOAD, self._upload),
            (STEP, self._step),
        ):
            points.around(point, RECORD, function)

    # -- rows about the process ---------------------------------------------------------------
    def hook_off(self, hook: str, error: BaseException | None) -> None:
        """Something cannot be measured from here on."""
        reason = f"{type(error).__name__}: {error}" if error is not None else "not in this version"
        self._say({"e": "hook-off", "hook": hook, "error": reason})

    def note(self, text: str) -> None:
        """A sentence for the report."""
        self._say({"e": "note", "text": text})

    def on_event(self, kind: str, facts: dict[str, Any]) -> None:
        """What the simulation tells (see ``simulate.install``), as rows of the run directory."""
        try:
            if kind == "core-failed":
                self._core_failed(facts["core"], facts["error"])
            elif kind == "process-ended":
                self.close()
            else:
                self._stopped.append(str(facts.get("message", kind)))
                if kind == "graphs-differ":
                    self._say(_plain({"e": "divergence", "t": time.monotonic(), **facts}))
                    self.note(self._stopped[-1])
                else:
                    self._all_stand_still(kind)
        except Exception:
            pass

    def _core_failed(self, core: int, error: BaseException) -> None:
        account = self._accounts.by_core.get(core)
        if account is not None and isinstance(error, Exception):
            self._error(account, error)

    def _all_stand_still(self, kind: str) -> None:
        """One row for each core: where it stands while no core can go on."""
        frames = sys._current_frames()
        for core, account in sorted(self._accounts.by_core.items()):
            row: dict[str, Any] = {"e": "hang", "core": core, "t": time.monotonic()}
            frame = frames.get(account.owner)
            if account.ended or frame is None:
                row |= {"site": None, "state": "has ended", "waits_for": None}
            else:
                row |= {"site": self._sites.here(frame), "state": kind, "waits_for": None}
            self._say(row)

    def _say(self, row: dict[str, Any]) -> None:
        """Write now, or with the first row of a process that has not used a device yet."""
        with self._lock:
            if not self._started:
                self._early.append(row)
                return
        self._writer.row(row)

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            torch, torch_xla = (sys.modules.get(name) for name in ("torch", "torch_xla"))
            process = {
                "e": "process",
                "version": VERSION,
                "pid": os.getpid(),
                "ppid": os.getppid(),
                "argv": list(getattr(sys, "orig_argv", sys.argv)),
                "python": ".".join(str(part) for part in sys.version_info[:3]),
                "torch": _version(torch),
                "torch_xla": _version(torch_xla),
                "device": _device_type(torch_xla),
                "simulated_cores": self._simulated_cores,
                "t": time.monotonic(),
                "time": time.time(),
            }
            self._writer.rows([process, *self._early])
            self._early.clear()
            self._started = True
        _at_end_of_child(self.close)
        _see_uncaught(self._uncaught)

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
            self._writer.row({"e": "core-start", "core": core, "t": account.began})
        return account, thread == account.owner or _in_autograd_thread()

    def _site(self, account: Account, frame: Any) -> int:
        waiting = account.owner if threading.get_ident() != account.owner else None
        return self._sites.here(frame, waiting)

    @contextlib.contextmanager
    def _span(self, account: Account, part: str) -> Iterator[None]:
        depth = account.enter(part)
        try:
            yield
        finally:
            account.leave(depth)

    # -- points -------------------------------------------------------------------------------
    def _core(self, call: Call, proceed: Callable[[], Any]) -> Any:
        core = call.core if call.core is not None else 0
        self._start()
        account, new = self._accounts.of(core, threading.get_ident())
        if new:
            self._writer.row({"e": "core-start", "core": core, "t": account.began})
        account.owner = threading.get_ident()
        failed = True
        try:
            result = proceed()
            failed = False
            return result
        except SystemExit as error:
            failed = error.code not in (None, 0)
            raise
        except Exception as error:
            self._error(account, error)
            raise
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
        with self._span(account, "launch"):
            try:
                return proceed()
            finally:
                self._graphs_ended(account, call, _trigger(account, call), began)

    def _read(self, call: Call, proceed: Callable[[], Any]) -> Any:
        return self._to_host(call, proceed, "host_sync")

    def _fallback(self, call: Call, proceed: Callable[[], Any]) -> Any:
        return self._to_host(call, proceed, "fallback")

    def _to_host(self, call: Call, proceed: Callable[[], Any], part: str) -> Any:
        found = self._account(call)
        if found is None:
            return proceed()
        account, own = found
        if account.in_rendezvous:
            return proceed()  # torch_xla's own exchange, or the simulation's
        site = self._site(account, sys._getframe(1))
        began = time.monotonic()
        depth = account.enter(part) if own else None
        account.reads.append([part, 0])
        try:
            return proceed()
        finally:
            _, compiled = account.reads.pop()
            if call.facts.get("executed"):
                trigger = "read" if part == "host_sync" else "fallback"
                compiled += self._graphs_ended(account, call, trigger, began, of_launch=False)
            if depth is not None:
                account.leave(depth)
            seconds = time.monotonic() - began
            if part == "host_sync":
                account.add_sync(site, call.what, seconds, compiled)
            else:
                self._count_fallback(account, site, call.what, seconds)

    def _count_fallback(self, account: Account, site: int, what: str, seconds: float) -> None:
        if what == "?":
            # A further tensor list of an operation that has been counted already.
            account.add_fallback_time(site, seconds)
            return
        account.add_fallback(site, what, seconds)
        with self._lock:
            self._fallbacks_counted[what] = self._fallbacks_counted.get(what, 0) + 1

    def _wait(self, call: Call, proceed: Callable[[], Any]) -> Any:
        return self._timed(call, proceed, "execute")

    def _loader(self, call: Call, proceed: Callable[[], Any]) -> Any:
        return self._timed(call, proceed, "input_wait")

    def _upload(self, call: Call, proceed: Callable[[], Any]) -> Any:
        found = self._account(call)
        if found is not None and not found[0].in_rendezvous:
            found[0].add_upload()
        return self._timed(call, proceed, "other")

    def _rendezvous(self, call: Call, proceed: Callable[[], Any]) -> Any:
        found = self._account(call)
        if found is None:
            return proceed()
        found[0].in_rendezvous += 1
        try:
            return self._timed(call, proceed, "other")
        finally:
            found[0].in_rendezvous -= 1

    def _timed(self, call: Call, proceed: Callable[[], Any], part: str) -> Any:
        found = self._account(call)
        if found is None or not found[1]:
            return proceed()
        with self._span(found[0], part):
            return proceed()

    def _step(self, call: Call, proceed: Callable[[], Any]) -> Any:
        found = self._account(call)
        if found is not None:
            account = found[0]
            if account.pending and account.read_since_step:
                self._boundary(account)  # this loop's graphs end at reads only
            account.pending += 1
            account.read_since_step = False
        return proceed()

    # -- graphs -------------------------------------------------------------------------------
    def _graphs_ended(
        self, account: Account, call: Call, trigger: str, began: float, *, of_launch: bool = True
    ) -> int:
        """Book what the meter saw; returns how many graphs were new for this core."""
        facts = call.facts
        site = self._site(account, sys._getframe(1))
        new = 0
        waited_for_another = 0.0
        seconds = time.monotonic() - began
        for graph in facts.get("graphs", ()):
            before = account.add_launch(site, trigger, seconds)
            seconds = 0.0
            if self._new_for(account, graph):
                new += 1
                if not graph["compiled"]:
                    waited_for_another += self._compile_seconds.get(graph["graph"], 0.0)
                self._compilation(account, graph, trigger, site, before)
        waited = facts.get("waited", 0.0)
        if of_launch:
            # A core that waited while another compiled the same graph would have compiled it
            # itself in a process of its own.
            compiling = facts.get("compile_seconds", 0.0) + min(waited, waited_for_another)
            executing = facts.get("execute_seconds", 0.0)
            if account.reads:
                account.divide_launch(compiling, 0.0, waited, rest=account.reads[-1][0])
            else:
                account.divide_launch(compiling, executing, waited)
        else:
            account.move("host_sync" if trigger == "read" else "fallback", "compile",
                         facts.get("compile_seconds", 0.0))  # fmt: skip
        if account.reads and of_launch:
            account.reads[-1][1] += new
        if trigger in ("read", "fallback"):
            account.read_since_step = True
        elif account.pending and call.what == "_xla_step_marker":
            self._boundary(account)
        return new

    def _new_for(self, account: Account, graph: dict[str, Any]) -> bool:
        name = graph["graph"]
        new = graph["compiled"]
        if name is not None:
            if self._simulated_cores is not None and name not in account.seen:
                new = True
            account.seen.add(name)
            if graph["seconds"] is not None:
                self._compile_seconds[name] = graph["seconds"]
        return bool(new)

    def _compilation(
        self, account: Account, graph: dict[str, Any], trigger: str, site: int, before: int
    ) -> None:
        waiting = account.owner if threading.get_ident() != account.owner else None
        frame = sys._current_frames().get(waiting) if waiting is not None else sys._getframe(1)
        named = shapes(self._sites.users(frame, EXPLAINING_FRAMES))
        causes = self._causes.setdefault(account.core, Causes())
        self._writer.row(
            {
                "e": "compilation",
                "core": account.core,
                "step": account.current_step,
                "site": site,
                "trigger": trigger,
                "seconds": graph["seconds"],
                "graph": graph["graph"],
                "reused": not graph["compiled"],
                "executions": before,
                "inputs": graph["inputs"],
                "outputs": graph["outputs"],
                "cause": causes.of(site, trigger, graph, named),
            }
        )

    def _boundary(self, account: Account) -> None:
        account.steps += account.pending
        account.pending = 0
        account.read_since_step = False
        account.book()
        if account.row_due():
            row = account.take_row()
            if row is not None:
                self._writer.row(row)
        now = time.monotonic()
        if now - self._metrics_written > METRICS_EVERY:
            self._metrics_written = now
            self._write_metrics()

    # -- the end ------------------------------------------------------------------------------
    def _end_core(self, account: Account, *, failed: bool) -> None:
        if account.ended:
            return
        account.ended = True
        if account.pending:
            account.steps += account.pending
            account.pending = 0
        rows = [account.take_row()]
        if rows[0] is None:
            rows = [account.take_row(after_last=True)]
        end = {
            "e": "core-end",
            "core": account.core,
            "t": time.monotonic(),
            "steps": account.steps,
            "failed": failed,
        }
        self._writer.rows([row for row in rows if row is not None] + [end])
        self._write_metrics()

    def _error(self, account: Account, error: BaseException) -> None:
        """One row for one exception, however many cores it ends."""
        try:
            if any(error is other for other in self._told) or str(error) in self._stopped:
                return
            self._told.append(error)
            self._writer.row(
                {
                    "e": "error",
                    "core": account.core,
                    "step": account.current_step,
                    "type": type(error).__name__,
                    "message": str(error),
                    "traceback": "".join(traceback.format_exception(error)),
                    "site": self._sites.at_error(error),
                }
            )
        except Exception:
            pass

    def _uncaught(self, error: BaseException) -> None:
        """The main thread dies; cores that have a main function of their own have told already."""
        for account in list(self._accounts.by_core.values()):
            if not account.ended and account.owner == threading.get_ident():
                self._error(account, error)
                self._end_core(account, failed=True)

    def _write_metrics(self) -> None:
        try:
            report = xla.binding("_xla_metrics_report")
            if report is not None:
                self._writer.replace("metrics.txt", report())
        except Exception:
            pass

    def close(self) -> None:
        """End the cores that are still open and write the last rows; never raises."""
        try:
            if not self._started or self._closed:
                return
            self._closed = True
            self._note_unattributed()
            for account in list(self._accounts.by_core.values()):
                self._end_core(account, failed=False)
            self._write_metrics()
            self._writer.row({"e": "end", "t": time.monotonic()})
        except Exception:
            pass

    def _note_unattributed(self) -> None:
        """Say which fallbacks torch_xla counted and no hook has seen."""
        names = xla.binding("_get_executed_fallback_ops")
        for name in names() if names is not None else ():
            missed = xla.counter(name) - self._fallbacks_counted.get(name, 0)
            if missed > 0 and name != "aten::_local_scalar_dense":
                self.note(f"{missed} runs of {name} on the CPU could not be given to a line")


def _trigger(account: Account, call: Call) -> str:
    if account.reads:
        return "read" if account.reads[-1][0] == "host_sync" else "fallback"
    if call.what != "_xla_step_marker":
        return "library"
    if account.pending:
        return "step"
    return "library" if account.waits_for_input else "sync"


def _in_autograd_thread() -> bool:
    """Whether this thread was started by torch's C++ and runs a backward pass."""
    return isinstance(threading.current_thread(), threading._DummyThread)


def _version(module: Any) -> str | None:
    version = getattr(module, "__version__", None)
    return None if version is None else str(version)


def _device_type(torch_xla: Any) -> str | None:
    try:
        from torch_xla import runtime

        kind = runtime.device_type()
    except Exception:
        kind = None
    return kind or os.environ.get("PJRT_DEVICE")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Whatever JSON cannot take, as text."""
    plain = (str, int, float, bool, type(None), list)
    return {key: value if isinstance(value, plain) else str(value) for key, value in row.items()}


def _at_end_of_child(close: Callable[[], None]) -> None:
    """Children of multiprocessing that were forked end without atexit; this one they run."""
    multiprocessing = sys.modules.get("multiprocessing")
    util = sys.modules.get("multiprocessing.util")
    if util is None or multiprocessing is None or multiprocessing.parent_process() is None:
        return
    util.Finalize(None, close, exitpriority=-100)


def _see_uncaught(tell: Callable[[BaseException], None]) -> None:
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, Exception):
            with contextlib.suppress(Exception):
                tell(error)
        before(kind, error, trace)

    sys.excepthook = hook
