"""The life of the cores: begin, end, failure; and what their sharing one process would break."""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import os
import signal
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from ..agent import xla
from ..agent.points import CORE, SIMULATE, Call
from . import arguments, belongings, compiled, frameworks, hosts, randomness, threads
from .cores import GRACE_SECONDS, CoreGroup, CoreStopped
from .deadlock import sentence, stands
from .lines import flush_all, whole_lines
from .link import LinkBrokenError
from .pod import Pod
from .shown import say_once_in_the_parent, show, show_others
from .wording import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from .running import Running
    from .scheduler import LaunchScheduler

#: How often the watch looks.
_POLL_SECONDS = 0.2
#: Seconds of CPU in a second that are too few for a compilation, on however busy a machine.
_LITTLE = 0.02


class Launcher:
    """Makes the group that runs, and ends the run if one of its cores fails.

    Args:
        running: The cores that run; this is who says so.
        scheduler: Where they launch.
        size: Number of simulated cores of this process.
        hang_timeout: Seconds without progress of any core after which the run is stopped.
        on_event: Told what the run directory should know.
    """

    def __init__(
        self,
        running: Running,
        scheduler: LaunchScheduler,
        size: int,
        hang_timeout: float,
        on_event: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._running = running
        self._scheduler = scheduler
        self._size = size
        self._hang_timeout = hang_timeout
        self._on_event = on_event
        self._origin: Any = None
        self._lock = threading.Lock()
        self._watches: list[threading.Thread] = []
        self._parent = os.getppid()

    def install(self) -> None:
        """Put the launcher around the cores' main functions, and around them all."""
        from torch_xla._internal import pjrt

        self._running.points.around(CORE, SIMULATE, self.core, "launcher")
        original = pjrt._run_thread_per_device

        # functools.wraps keeps the name by which torch_xla pickles the function.
        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._parent = os.getppid()  # a forked process has another than the one we began in
            _renew_autograd()
            if self._size > 1 and kwargs.get("initializer_fn") is pjrt.initialize_multiprocess:
                kwargs["fn"] = arguments.for_each_core(kwargs["fn"])
            with self._interruptible(), whole_lines(), belongings.own_output():
                try:
                    return original(*args, **kwargs)
                finally:
                    self._end()

        pjrt._run_thread_per_device = run
        say_once_in_the_parent()

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let Ctrl-C reach the cores: Python gives it to the main thread, which waits for them."""
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        ):
            yield
            return

        def interrupt(number: int, frame: FrameType | None) -> None:
            group = self._running.group
            if group is not None and group.fail(None, KeyboardInterrupt()):
                group.tell("interrupted")
            signal.default_int_handler(number, frame)

        signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _end(self) -> None:
        """The cores are through; nothing of ours may still run when the process is taken apart."""
        group, self._running.group = self._running.group, None
        if group is not None:
            group.close()
            if self._running.crossing is not None:
                self._running.crossing.drain()
            if group.failure is not None and group.failure[0] is not None:
                show_others(group.failure[1], group.also_failed)
        for watch in self._watches:
            watch.join(GRACE_SECONDS)
        self._watches.clear()

    def core(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around CORE."""
        try:
            return self._core(call, proceed)
        finally:
            threads.end()

    def _core(self, call: Call, proceed: Callable[[], Any]) -> Any:
        if call.core is None or xla.binding("_xla_get_replication_devices_count")() != self._size:
            return proceed()  # a program on one device (nprocs=1): nobody to wait for
        try:
            group, origin = self._join()
        except LinkBrokenError as error:
            raise RuntimeError(f"xladoctor: {error}") from None
        group.enter(call.core)
        frameworks.prepare_core()
        threads.begin(origin.generators())
        try:
            result = proceed()
            if group.failure is None:
                self._scheduler.settle(group.cores[call.core])
        except CoreStopped:
            group.leave(call.core)
            assert group.failure is not None
            _say_why(group)
            raise group.failure[1] from None
        except SystemExit:
            group.leave(call.core)
            raise
        except BaseException as error:
            if group.fail(call.core, error):
                group.tell("core-failed", core=call.core, error=error)
                show(call.core, group.size, error)
            elif isinstance(error, Exception):
                group.also_failed.append((call.core, error))
            group.leave(call.core)
            raise
        group.leave(call.core)
        return result

    def _join(self) -> tuple[CoreGroup, randomness.Origin]:
        """The group of this launch; the first core to come makes it."""
        with self._lock:
            group = self._running.group
            if group is None or group.over or len(group.cores) == self._size:
                group = self._running.group = self._new_group()
                self._origin = randomness.Origin()
                if self._size > 1:
                    compiled.begin(self._size, group.size)
                watch = threading.Thread(
                    target=self._watch, args=(group,), name="xladoctor-watch", daemon=True
                )
                self._watches.append(watch)
                watch.start()
            return group, self._origin

    def _new_group(self) -> CoreGroup:
        share = self._running.share
        if share is None:
            return CoreGroup(self._size, self._on_event)
        launch = "program" if share.one_each else os.environ.get(hosts.LAUNCH, "0")
        return Pod(share, launch, self._hang_timeout, self._on_event)

    def begin_here(self) -> None:
        """Make this process a core, where a launcher of processes has started it as one."""
        share = self._running.share
        assert share is not None
        number = share.first
        try:
            group, _ = self._join()
        except LinkBrokenError as error:
            sys.stderr.write(f"xladoctor: {error}\n")
            flush_all()
            os._exit(1)
        core = group.enter(number)
        core.thread = threading.main_thread().ident or core.thread
        if threading.current_thread() is threading.main_thread():
            xla.become_core(number)
        before = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
            if isinstance(error, CoreStopped):
                _say_why(group)
                return
            if isinstance(error, Exception) and group.fail(number, error):
                group.tell("core-failed", core=number, error=error)
            before(kind, error, trace)

        def end() -> None:
            if group.failure is None:
                self._scheduler.settle(core)
            group.leave(number)
            self._end()

        sys.excepthook = hook
        atexit.register(end)

    def _watch(self, group: CoreGroup) -> None:
        """Ends what cannot end by itself; runs in a thread of its own until the group is over."""
        idle = _Idle()
        while True:
            if group.all_left.wait(_POLL_SECONDS):
                if not group.stuck:
                    return
                time.sleep(_POLL_SECONDS)
            try:
                self._look(group, idle)
            except Exception as error:
                # Nobody else ends a run that hangs: what cannot be said must not end the watch.
                words = f"xladoctor: the watch over the cores failed: {error!r}"
                group.fail(None, RuntimeError(words))

    def _look(self, group: CoreGroup, idle: _Idle) -> None:
        if os.getppid() != self._parent:
            group.fail(None, RuntimeError("xladoctor: the process that started the cores died"))
            self._end_process(group)
        group.look()
        if group.failure is not None:
            late = time.monotonic() - group.failed_at > group.grace
            if late and (group.stuck or not group.over):
                self._end_process(group)
            return
        launching = self._scheduler.launching
        if launching is not None:
            core, meeting, before = launching
            compiled = xla.counter("UncachedCompile") > before
            # Still the same launch: what was compiled is not the next one's.
            if compiled and meeting.launched and self._scheduler.launching is launching:
                group.differ(core, meeting, core.number)
        compiles = not idle.since(self._hang_timeout)
        if self._scheduler.busy and compiles:
            group.progress = time.monotonic()  # a long compilation is no hang
        elif time.monotonic() - group.last_progress() > self._hang_timeout:
            self._call_hang(group)

    def _call_hang(self, group: CoreGroup) -> None:
        waited = f"{self._hang_timeout:.0f} s"
        message = f"xladoctor: no core has made progress for {waited}: {sentence(group)}"
        facts = stands(group)
        if group.fail(None, RuntimeError(message), "hang"):
            group.tell("hang", message=message, **facts)

    def _end_process(self, group: CoreGroup) -> None:
        """The cores that are left sit where no exception can reach them."""
        assert group.failure is not None
        number, error = group.failure
        left = sorted(core.number for core in group.cores.values() if not core.ended)
        try:
            _say_why(group)
            if left:
                belongings.standard("stderr").write(
                    f"xladoctor: {names(left)} did not stop within {group.grace:.0f} s; "
                    "ending the process\n"
                )
            group.tell("process-ended", core=number, error=error, left=left)
            group.last_words()
            flush_all()
        finally:
            os._exit(1)


class _Idle:
    """Whether this process has hardly used a CPU for some time: a compilation would."""

    def __init__(self) -> None:
        self._used = time.process_time()
        self._worked = time.monotonic()

    def since(self, seconds: float) -> bool:
        """Whether it has not for that many seconds; to be asked more often than that."""
        used, now = time.process_time(), time.monotonic()
        # The watch itself takes some CPU; a compilation takes all that it is given.
        if used - self._used > _LITTLE * max(1.0, now - self._worked):
            self._used, self._worked = used, now
        return now - self._worked > seconds


def _renew_autograd() -> None:
    """Let autograd take notice of a fork before the cores begin.

    The first use of its engine in a forked process destroys it and makes another, without any lock
    (torch 2.9.0, ``PythonEngine::get_python_engine``). Two cores that come to their first
    ``backward()`` at once would both do so, and one would run into the other's ruins.
    """
    import torch

    torch.autograd._is_checkpoint_valid()


def _say_why(group: CoreGroup) -> None:
    """Why the run is over, once, unless a core or the user at the keyboard has said so."""
    assert group.failure is not None
    number, error = group.failure
    if number is None and group.first_to_show() and str(error):
        belongings.standard("stderr").write(f"{error}\n")


def refuse_shared_models() -> None:
    """Stop a core that moves a model which another core has moved to its own device.

    A model made outside of the core's function is a copy in each process of a real run; here all
    cores would move one and the same from device to device under each other.
    """
    import torch

    original = torch.nn.Module.to
    movers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    lock = threading.Lock()

    @functools.wraps(original)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        core = xla.core_of_thread()
        device = next((one for one in (*args, *kwargs.values()) if _on_xla(one)), None)
        if core is not None and device is not None:
            with lock:
                first = movers.setdefault(self, core)
            if first != core:
                raise RuntimeError(
                    f"xladoctor: {names(sorted((first, core)))} move one and the same "
                    f"{type(self).__name__} to their devices, because simulated cores are threads: "
                    "make the model inside the function that every core runs, or put it into "
                    "xmp.MpModelWrapper"
                )
        return original(self, *args, **kwargs)

    torch.nn.Module.to = to


def _on_xla(value: Any) -> bool:
    """Whether an argument of ``Module.to`` is an XLA device."""
    return str(getattr(value, "type", value)).startswith("xla") and not hasattr(value, "shape")


def give_each_core_its_model() -> None:
    """Make ``xmp.MpModelWrapper.to`` give every core a model of its own.

    It moves the one model that it wraps, which is right when every core is a process. Cores that
    are threads would move it from device to device under each other.
    """
    import torch_xla.distributed.xla_multiprocessing as xmp

    original = xmp.MpModelWrapper.to

    def to(self: Any, device: Any) -> Any:
        if xla.binding("_xla_get_replication_devices_count")() <= 1:
            return original(self, device)
        with self._lock:
            model = copy.deepcopy(self._model)
        return model.to(device)

    xmp.MpModelWrapper.to = to
