"""What is known of each core, and to which core a thread belongs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_thread = threading.local()


@dataclasses.dataclass(slots=True)
class Core:
    """One core of the program; also its main thread, before cores begin.

    Attributes:
        number: Its ordinal.
        seeds: The program's own seeds, of the host's and of the device's generator.
        steps: Optimizer steps so far, of all optimizers together.
        drawn: Draws since the last of these steps (since a seed was set, before the first).
        trains: Whether an optimizer has been made.
        batch: Leading size of the batch that the program is at; None if it is not known.
        from_loader: Whether a loader gave that batch.
        depth: How many modules are running inside each other.
        loaders: Data loaders iterated over so far.
        epochs: Loader to how often it was iterated over.
        thread: The thread that runs its main function.
        asides: Draws that are no part of its training, see :func:`aside`.
        beside: Where the generators of ``random`` and numpy stand that make the batches.
        notes: What each part keeps, by its name.
    """

    number: int = 0
    seeds: tuple[int, int] = (0, 0)
    steps: int = 0
    drawn: int = 0
    trains: bool = False
    batch: int | None = None
    from_loader: bool = False
    depth: int = 0
    loaders: int = 0
    epochs: dict[str, int] = dataclasses.field(default_factory=dict)
    thread: int = dataclasses.field(default_factory=threading.get_ident)
    asides: int = 0
    beside: tuple[Any, Any] | None = None
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)

    def begun(self, number: int) -> Core:
        """A core that begins in the calling thread, where this one, the main thread, stands."""
        return Core(number, self.seeds, drawn=self.drawn)


#: The main thread, and whatever belongs to no core.
main = Core()


def current() -> Core:
    """The core that the calling thread belongs to."""
    core: Core | None = getattr(_thread, "core", None)
    return main if core is None else core


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """What runs here is no part of the training that the ways share: it makes a batch."""
    if is_aside():
        yield
        return
    core = current()
    _thread.aside = True
    training = _host_states()
    if core.beside is not None:
        _put(core.beside)
    try:
        yield
    finally:
        core.beside = _host_states()
        _put(training)
        _thread.aside = False


def _host_states() -> tuple[Any, Any]:
    """Where the generators of ``random`` and numpy stand, in this core."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state()


def _put(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["numpy"].random.set_state(states[1])


def makes_batch() -> bool:
    """Whether the calling thread is about to make a batch, whoever asks for it."""
    return bool(getattr(_thread, "aside", False))


def is_aside() -> bool:
    """Whether the calling thread makes a batch, or is not the core's own."""
    return makes_batch() or threading.get_ident() != current().thread


def enter(core: Core | None) -> None:
    """From now on the calling thread, and the threads that it starts, belong to a core."""
    _thread.core = core


def inherit() -> None:
    """Let threads belong to the core of the thread that starts them."""
    original = threading.Thread.start

    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        core: Core | None = getattr(_thread, "core", None)
        if core is not None:
            self.run = _belonging(self, self.run, core)  # type: ignore[method-assign]
        original(self)

    threading.Thread.start = start  # type: ignore[method-assign]


def _belonging(thread: threading.Thread, run: Callable[[], None], core: Core) -> Callable[[], None]:
    before = thread.__dict__.get("run")

    def belonging() -> Any:
        # As it was, so that thread and function do not hold each other.
        if before is None:
            thread.__dict__.pop("run", None)
        else:
            thread.__dict__["run"] = before
        _thread.core = core
        return run()

    return belonging
