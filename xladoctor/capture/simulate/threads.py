"""Threads that a core starts belong to it: its device loaders, its pools, its timers.

In a process of its own every thread has the core's device as the default, and the process's random
numbers. torch_xla keeps the default device for each thread, and a new thread begins with the first
core's: what it makes on ``"xla"`` would be on that core's device (torch_xla 2.9.0:
``MpDeviceLoader(loader, "xla")`` sent all batches there).
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from ..agent import xla
from . import randomness

if TYPE_CHECKING:
    from collections.abc import Callable

_thread = threading.local()


def begin(generators: randomness.Generators) -> None:
    """The calling thread becomes a core, whose default device is set already.

    Args:
        generators: The core's random numbers.
    """
    _thread.device = xla.binding("_xla_get_default_device")()
    _thread.own = {}
    randomness.use(generators)


def own() -> dict[Any, Any] | None:
    """What the core of this thread keeps in its process's place; None outside of cores."""
    mine: dict[Any, Any] | None = getattr(_thread, "own", None)
    return mine


def end() -> None:
    """The calling thread is a core no longer; it may serve another one."""
    _thread.device = None
    _thread.own = None
    randomness.use(None)


def install() -> None:
    """Let threads begin as those of the core that starts them."""
    original = threading.Thread.start

    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        device = getattr(_thread, "device", None)
        if device is not None:
            self.run = _belonging(self, self.run, device)  # type: ignore[method-assign]
        original(self)

    threading.Thread.start = start  # type: ignore[method-assign]


def _belonging(
    thread: threading.Thread, run: Callable[[], None], device: str
) -> Callable[[], None]:
    """A thread's ``run`` as that of the core with this device, which is the calling one."""
    generators = randomness.current()
    things = own()

    def belonging() -> Any:
        del thread.run  # the class has it; so thread and function do not keep each other alive
        _thread.device = device
        _thread.own = things
        xla.binding("_xla_set_default_device")(device)
        randomness.use(generators)
        return run()

    return belonging
