"""The adapter to TorchTPU: which of its calls are points, and what it has compiled.

Written against torch_tpu 0.2.0 with torch 2.12.0; what is told here was seen by running it (its
runtime on a PJRT plug-in for CPUs, not on a TPU):

* A process drives one device; ``torch.device("tpu")`` is its default.
* Operations are queued, and a thread of the runtime takes them from there: it looks each up in the
  compilation cache, and compiles what is not there. So the counters
  (``torch.tpu._get_cache_requests()``, ``_hits()``, ``_misses()``) lag behind the program until the
  host waits: in a read, or in ``torch.accelerator.synchronize()``.
* Asked after the runtime has been shut down (at exit), the counters abort the process. Whoever
  registers with ``atexit`` after the device was initialized is called before that.
* ``_get_cache_stats().per_entry_stats`` has how long each program took to compile, in no order.
* An operation without a kernel, where fallbacks are enabled, fetches its inputs through
  ``aten::_to_cpu``, as on other devices. Which operation it is only TorchTPU's log says.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from . import tensors
from .points import FALLBACK, LOADER, READ, RECORD, STEP, WAIT, Call, Points
from .recorder import AT_END
from .wrapping import Wrapper, device_of, install_data_loader, install_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from .recorder import Recorder

#: The device's type, as PyTorch calls it.
KIND = "tpu"

#: What an operation is called whose name only the log has.
UNNAMED_FALLBACK = "an operation without a kernel"


def core(_device: object = None) -> int:
    """The core of this process: its rank, as launchers tell it; 0 without one."""
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdecimal() else 0


def _current_core() -> int | None:
    main = threading.current_thread() is threading.main_thread()
    return core() if main and _initialized() else None


def _initialized() -> bool:
    device = getattr(sys.modules.get("torch"), KIND, None)
    try:
        return device is not None and bool(device.is_initialized())
    except Exception:
        return False


def install(points: Points, recorder: Recorder) -> list[str]:
    """Wrap what has a point.

    Args:
        points: Where the calls go.
        recorder: Is told what was compiled.

    Returns:
        The names that this version does not have: not measured.
    """
    wrap = Wrapper(points)
    install_data_loader(wrap, _current_core)
    install_steps(wrap, lambda one: None if device_of(one, KIND) is None else (core(),))
    wrap.replace("torch.accelerator", "synchronize", _waiting(points))
    wrap.missing += tensors.install_for(points, KIND, core, lambda: UNNAMED_FALLBACK)
    Compilations(recorder).install(points)
    return wrap.missing


def _waiting(points: Points) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def synchronize(*args: Any, **kwargs: Any) -> Any:
            if not _initialized():
                return original(*args, **kwargs)
            return points.run(Call(WAIT, "synchronize", core(), args, kwargs), original)

        return synchronize

    return make


class Counters:
    """TorchTPU's own counts of its compilation cache; all None where it does not give them."""

    def __init__(self) -> None:
        self._device: Any = None

    def _ask(self, name: str) -> Any:
        if self._device is None:
            self._device = getattr(importlib.import_module("torch"), KIND)
        try:
            return getattr(self._device, name)()
        except Exception:
            return None

    @property
    def misses(self) -> int | None:
        """Programs that were compiled, so far as the runtime has come."""
        found = self._ask("_get_cache_misses")
        return found if isinstance(found, int) else None

    @property
    def seconds(self) -> float | None:
        """How long they took to compile, added up (several may compile at a time)."""
        stats = self._ask("_get_cache_stats")
        entries = getattr(stats, "per_entry_stats", None)
        if entries is None:
            return None
        return float(sum(one.compilation_duration.total_seconds() for one in entries))

    def row(self) -> dict[str, Any]:
        """The counts as a row of the run directory."""
        return {
            "e": "device-cache",
            "requests": self._ask("_get_cache_requests"),
            "hits": self._ask("_get_cache_hits"),
            "compilations": self.misses,
        }


class Compilations:
    """Tells the recorder what was compiled: when the host has waited, for then all is counted.

    Before that the runtime may be many steps behind. What is new at a wait is of one of the steps
    since the wait before; if that is one step, of the step that is over, unless the next batch has
    been asked for since.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counters = Counters()
        self._misses = 0
        self._seconds = 0.0
        self._stepped = False
        self._steps = 0  # since the host has waited
        self._process: int | None = None  # the one whose runtime may be asked
        self._over = False

    def install(self, points: Points) -> None:
        """Listen; installed after the recorder, whose books are open by then."""
        points.around(READ, RECORD, self._waits, "compilations at a read")
        points.around(FALLBACK, RECORD, self._waits, "compilations at a fallback")
        points.around(WAIT, RECORD, self._waits, "compilations at a wait")
        points.around(STEP, RECORD, self._step, "compilations at a step")
        points.around(LOADER, RECORD, self._batch, "compilations at a batch")

    def _may_ask(self) -> bool:
        """Whether there is a runtime in this process, and it is not at its end."""
        if self._over or not _initialized():
            return False
        if self._process is None:
            self._process = os.getpid()
            atexit.register(self._end)
        return self._process == os.getpid()

    def _waits(self, call: Call, proceed: Callable[[], Any]) -> Any:
        result = proceed()
        call.facts["compile_seconds"] = self._tell(call)
        return result

    def _step(self, call: Call, proceed: Callable[[], Any]) -> Any:
        call.facts.update(eager=True, compile_seconds=0.0, graphs=())
        self._stepped = True
        self._steps += 1
        return proceed()

    def _batch(self, _call: Call, proceed: Callable[[], Any]) -> Any:
        self._stepped = False
        return proceed()

    def _tell(self, call: Call) -> float:
        """Tell what is new; returns how many seconds it took to compile."""
        if not self._may_ask():
            return 0.0
        steps, self._steps = self._steps, 0
        misses = self._counters.misses
        if misses is None or misses == self._misses:
            return 0.0
        new, self._misses = misses - self._misses, misses
        total = self._counters.seconds
        took, self._seconds = (total or 0.0) - self._seconds, total or 0.0
        if new > 0:  # else the program has cleared the cache
            each = took / new if took > 0 else None  # not told before the compilation is over
            self._recorder.compiled(call, new, each, steps, in_last_step=self._stepped)
        return max(0.0, took)

    def _end(self) -> None:
        """The runtime is about to be shut down, which is no part of the program's work."""
        with contextlib.suppress(Exception):
            if self._may_ask():
                self._tell(Call(WAIT, AT_END, core()))
                self._recorder.process.write(self._counters.row())
        self._over = True
        self._recorder.close()
