"""What is written about the process itself, apart from what its cores do."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

from ..masking import masked
from . import xla
from .writer import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .writer import Writer


class Process:
    """One process of the command, from its first use of a device on.

    Args:
        writer: Its folder.
        simulated_cores: How many cores are simulated; None on real devices.
        device: The type of the devices' tensors.
    """

    def __init__(self, writer: Writer, simulated_cores: int | None, device: str = "xla") -> None:
        self._writer = writer
        self._device = device
        self._simulated_cores = simulated_cores
        self._lock = threading.Lock()
        self._early: list[dict[str, Any]] = []
        self._since = time.monotonic()
        self.started = False

    def start_over(self) -> None:
        """Become the log of a forked child."""
        self._writer.start_over()
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self.started = False

    def write(self, *rows: dict[str, Any]) -> None:
        """Append rows."""
        self._writer.rows(rows)

    def keep(self, name: str, text: str) -> bool:
        """Keep a text, packed, in the process's folder; whether that was possible."""
        return self._writer.keep(name, zlib.compress(text.encode("utf-8", "replace"), 1))

    def hold(self, make: Callable[[], dict[str, Any]], now: float) -> None:
        """Append a row of a short step a moment later."""
        self._writer.hold(make, now)

    def say(self, row: dict[str, Any]) -> None:
        """Write now, or with the first row of a process that has not used a device yet."""
        with self._lock:
            if not self.started:
                self._early.append(row)
                return
        self.write(row)

    def note(self, text: str) -> None:
        """A sentence for the report."""
        self.say({"e": "note", "text": text})

    def hook_off(self, hook: str, error: BaseException | None) -> None:
        """Something cannot be measured from here on (``error`` None: it is not there at all)."""
        reason = f"{type(error).__name__}: {error}" if error is not None else "not in this version"
        self.say({"e": "hook-off", "hook": hook, "error": reason})

    def start(self) -> bool:
        """Write the first row; returns False if that has been done."""
        with self._lock:
            if self.started:
                return False
            process = {
                "e": "process",
                "version": VERSION,
                "pid": os.getpid(),
                "ppid": os.getppid(),
                "argv": masked(sys.orig_argv),
                "python": ".".join(str(part) for part in sys.version_info[:3]),
                "torch": _version("torch"),
                "torch_xla": _version("torch_xla"),
                "torch_tpu": _version("torch_tpu"),
                "device": self._device_type(),
                "simulated_cores": self._simulated_cores,
                "since": self._since,
                "t": time.monotonic(),
                "time": time.time(),
            }
            self.write(process, *self._early)
            self._early.clear()
            self.started = True
            return True

    def _device_type(self) -> str | None:
        if self._device != "xla":
            return self._device
        return xla.device_type() or os.environ.get("PJRT_DEVICE")

    def mark_ending(self) -> None:
        """Let the launcher know that this process has run its exit handlers (see ``endings``)."""
        if self.started:
            self._writer.mark("ending")

    def write_metrics(self) -> None:
        """Write torch_xla's metrics report; takes about 1 ms."""
        if self._device != "xla":
            return
        try:
            report = xla.binding("_xla_metrics_report")
            if report is not None:
                self._writer.replace("metrics.txt", report())
        except Exception:
            pass

    def note_unattributed(self, counted: Mapping[str, int]) -> None:
        """Say which fallbacks torch_xla counted and no hook has seen.

        Args:
            counted: Operation to the runs that were recorded.
        """
        if self._device != "xla":
            return
        for name, count in xla.fallbacks().items():
            missed = count - counted.get(name, 0)
            if missed > 0 and name != "aten::_local_scalar_dense":
                self.note(f"{missed} runs of {name} on the CPU could not be given to a line")


def _version(name: str) -> str | None:
    module = sys.modules.get(name)
    version = getattr(module, "__version__", None)
    if module is not None and version is None:
        with contextlib.suppress(Exception):  # a package that is not installed has none
            version = importlib.metadata.version(name)
    return None if version is None else str(version)


def at_end_of_child(close: Callable[[], None]) -> None:
    """Children of multiprocessing that were forked end without atexit; this one they run."""
    multiprocessing = sys.modules.get("multiprocessing")
    util = sys.modules.get("multiprocessing.util")
    if util is None or multiprocessing is None or multiprocessing.parent_process() is None:
        return
    util.Finalize(None, close, exitpriority=-100)


def see_uncaught(tell: Callable[[BaseException], None]) -> None:
    """Have uncaught exceptions of the main thread told, before Python shows them as ever."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, Exception):
            with contextlib.suppress(Exception):
                tell(error)
        before(kind, error, trace)

    # What shows errors in its own way may ask whether the hook it finds is Python's own, or ours.
    hook.before = before  # type: ignore[attr-defined]
    hook.tell = tell  # type: ignore[attr-defined]
    sys.excepthook = hook


def see_sudden_exit(tell: Callable[[int], None]) -> None:
    """Have ``os._exit`` told, after which nothing else of the process runs; once in a process."""
    before = os._exit
    if getattr(before, "tells_xladoctor", False):
        return

    def leave(status: int) -> Any:
        with contextlib.suppress(Exception):
            tell(status)
        before(status)

    leave.tells_xladoctor = True  # type: ignore[attr-defined]
    os._exit = leave
