"""The places in torch_xla where xladoctor listens in, as chains of small functions.

Each internal of torch_xla is wrapped once, by ``wrapping.py``, into a *point*. Whoever wants to
know or to change something puts a function *around* a point. The order is fixed, outermost first::

    RECORD    the recorder: times the whole, notes the user's line
    SIMULATE  the simulated cores: barrier, wait, launch lock, in-memory exchange
    MEASURE   counters before and after; inside the simulation's lock, so that with several cores
              in one process the difference belongs to this core's call alone
    the original

A function that is put around a point gets the :class:`Call` and ``proceed`` and must call
``proceed()`` at most once and return what the user's program is to get. An exception of the
original goes through; an exception of a RECORD or MEASURE function itself turns that function off
(it is noted once) and never reaches the program. A SIMULATE function may raise: the simulation
is part of how the program runs.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD, SIMULATE, MEASURE = 0, 1, 2

#: Points. A *launch* ends the pending graph and runs it; a *read* brings a value to the host.
LAUNCH = "launch"  # _XLAC._xla_step_marker, _xla_sync_multi; also what a read has to launch first
WAIT = "wait"  # _XLAC._xla_wait_device_ops
READ = "read"  # .item(), bool(t), .cpu(), .tolist(), print(t), copy to a CPU tensor ...
FALLBACK = "fallback"  # an operation that runs on the CPU: its device-to-host part
UPLOAD = "upload"  # host to device
COLLECTIVE = "collective"  # xm.all_reduce and the like, while tracing
RENDEZVOUS = "rendezvous"  # xm.rendezvous, mesh_reduce: cores exchange bytes
STEP = "step"  # optimizer.step() has returned
MARK = "mark"  # a tensor gets a sharding; a device loader is made, or iterated
LOADER = "loader"  # next() of a data loader
MADE = "made"  # a data loader has been made
FEED = "feed"  # the thread that takes batches for a device loader: its whole main function
START = "start"  # pjrt.run_multiprocess is about to start the cores' processes
CORE = "core"  # one core's whole main function


@dataclasses.dataclass(slots=True)
class Call:
    """One passage through a point.

    Attributes:
        point: One of the names above.
        what: The original's name ("_xla_step_marker", "item", "aten::nonzero", "all_reduce").
        core: The core's ordinal, or None where it is not known.
        args, kwargs: As the program passed them; a function may replace them before ``proceed``.
        facts: What the functions tell each other (MEASURE puts "compiled": int and
            "compile_seconds": float and "graphs": list; SIMULATE puts "waited", seconds that only
            the simulation cost, and "execute_seconds", seconds of waiting for the device).
    """

    point: str
    what: str
    core: int | None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


#: In the place of what has not come yet.
_NOT_YET: Any = object()

Around = "Callable[[Call, Callable[[], Any]], Any]"


class Points:
    """All chains of one process."""

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._around: dict[str, list[tuple[int, str, Any]]] = {}
        self._on_failure = on_failure

    def around(self, point: str, level: int, function: Any, name: str = "") -> None:
        """Put a function around a point at a level (RECORD, SIMULATE or MEASURE)."""
        chain = self._around.setdefault(point, [])
        chain.append((level, name or getattr(function, "__name__", "?"), function))
        chain.sort(key=lambda entry: entry[0])

    def clear(self) -> None:
        """Take every function away: calls go straight to their originals again."""
        self._around = {}

    def run(self, call: Call, original: Callable[..., Any]) -> Any:
        """Pass a call through its chain to the original."""
        chain = self._around.get(call.point)
        if not chain:
            return original(*call.args, **call.kwargs)
        return self._step(call, original, chain, 0)

    def _step(self, call: Call, original: Callable[..., Any], chain: list[Any], at: int) -> Any:
        level, name, function = chain[at]
        at += 1
        result = failed = _NOT_YET

        def proceed() -> Any:
            nonlocal result, failed
            if result is not _NOT_YET:
                return result
            try:
                if at == len(chain):
                    result = original(*call.args, **call.kwargs)
                else:
                    result = self._step(call, original, chain, at)
            except BaseException as error:
                failed = error
                raise
            return result

        try:
            return function(call, proceed)
        except BaseException as error:
            # The program's own exception passes untouched; KeyboardInterrupt and its like are its.
            if level == SIMULATE or error is failed or not isinstance(error, Exception):
                raise
            self._around[call.point] = [e for e in self._around[call.point] if e[2] is not function]
            self._on_failure(f"{call.point}:{name}", error)
            if failed is not _NOT_YET:
                raise failed from None
            return proceed()
        finally:
            failed = None  # an exception and the frame that holds it would keep each other alive
