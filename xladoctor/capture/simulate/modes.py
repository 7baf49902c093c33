"""What torch and torch_xla keep one of for a process, so that on a device each core has its own.

``torch_xla.compile`` forbids launches inside a full graph, names its graph and leaves eager mode;
a ``StepTrace`` tells the device loader that it has ended the step. With one such flag for all, the
compiled function of one core stops the launch of another.

``from_pretrained`` of transformers sets ``torch.set_default_dtype`` while it makes a model, and
then what it has found: of two cores at once the later one finds what the earlier one has set.

What is asked at a launch is given to torch_xla inside the launch lock, for the core that launches.
Eager mode and the default dtype are asked by every operation, so there the cores take turns: while
one is in eager mode, others that trace graphs wait until it leaves the mode, ends or waits itself,
and the other way round (:class:`Rooms`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import threading
from typing import TYPE_CHECKING, Any

from ..agent import xla
from .running import once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .cores import Core
    from .running import Running

#: Seconds between two looks whether the run is over, for a core that waits for its mode.
_POLL_SECONDS = 0.2

#: Bindings with one value for the process that are asked at a launch: setter to getter.
_AT_LAUNCH = {
    "_set_allow_execution": "_get_allow_execution",
    "_set_current_graph_name": "_get_current_graph_name",
}


@dataclasses.dataclass(slots=True)
class Mode:
    """What one core has set.

    Attributes:
        eager: Whether each operation runs by itself.
        dtype: The ``torch.dtype`` of new tensors; None if torch was not asked.
        at_launch: Setter to the core's value, for those of :data:`_AT_LAUNCH` that there are.
        marked_step: Whether a ``StepTrace`` has ended the step since the loader's last batch.
        cache: Whether it has named a folder for what it compiles.
    """

    eager: bool = False
    dtype: Any = None
    at_launch: dict[str, Any] = dataclasses.field(default_factory=dict)
    marked_step: bool = False
    cache: bool = False

    @classmethod
    def of_process(cls) -> Mode:
        """What the process has set, with which each core begins; while none of them launches."""
        there = {
            setter: xla.binding(getter)()
            for setter, getter in _AT_LAUNCH.items()
            if None not in (xla.binding(setter), xla.binding(getter))
        }
        return cls(xla.eager(), _torch().get_default_dtype(), there)

    def copy(self) -> Mode:
        """The same for a core of its own."""
        return dataclasses.replace(self, at_launch=dict(self.at_launch))

    @property
    def holds(self) -> bool:
        """Whether the process is in this mode, in what every operation asks."""
        return xla.eager() == self.eager and self.dtype in (None, _torch().get_default_dtype())

    def take(self) -> None:
        """Bring the process into this mode, in what every operation asks."""
        if xla.eager() != self.eager:
            xla.binding("_set_use_eager_mode")(self.eager)
        if self.dtype is not None:
            _torch()._C._set_default_dtype(self.dtype)


@contextlib.contextmanager
def applied(core: Core) -> Iterator[None]:
    """Give torch_xla what the core has set; inside the launch lock."""
    theirs = core.group.process_mode.at_launch
    changed = {name: one for name, one in core.mode.at_launch.items() if one != theirs[name]}
    for name, value in changed.items():
        xla.binding(name)(value)
    try:
        yield
    finally:
        for name in changed:
            xla.binding(name)(theirs[name])


class Rooms:
    """A room for each mode (eager or tracing, and by default dtype): all cores that run are in one.

    A core leaves its room when it waits for others. Those that have met are let in together, so
    that none of them has to wait for one that waits for it in a collective; if they have different
    default dtypes, all have that of the first one until they wait again.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: set[int] = set()

    def leave(self, core: Core) -> None:
        """The core waits for others, or has ended."""
        with self._changed:
            self._inside.discard(core.number)
            self._changed.notify_all()

    def enter(self, core: Core) -> None:
        """The core goes on, as soon as no core is in the other room.

        Raises:
            CoreStopped: The run is over.
        """
        with self._changed:
            while not self._admitted(core):
                self._changed.wait(_POLL_SECONDS)
                core.group.check()

    def admit(self, cores: Iterable[Core]) -> None:
        """Let in those that have met, as far as they go into the same room."""
        with self._changed:
            for core in cores:
                self._admitted(core, met=True)

    def _admitted(self, core: Core, *, met: bool = False) -> bool:
        """Whether the core is in its room now. Holds the lock."""
        if core.number in self._inside:
            return True
        if not core.mode.holds:
            if not self._inside:
                core.mode.take()
            elif not (met and core.mode.eager == xla.eager()):
                return False
        self._inside.add(core.number)
        return True


def install(running: Running, tell: Callable[[str, dict[str, Any]], None]) -> None:
    """Let each core have its own; what this torch_xla does not have is left alone.

    Args:
        running: The cores that run.
        tell: Told once, as "not-obeyed", of what cannot be kept apart.
    """
    xlac = importlib.import_module("torch_xla")._XLAC
    for setter, getter in _AT_LAUNCH.items():
        if xla.binding(setter) is not None and xla.binding(getter) is not None:
            _keep_apart(xlac, running, setter, getter)
    if xla.binding("_set_use_eager_mode") is not None:
        _keep_eager_apart(xlac, running)
    _keep_dtype_apart(running)
    _ignore_sessions(xlac, running, tell)
    with contextlib.suppress(ImportError, AttributeError):
        _keep_marks_apart(running)
    with contextlib.suppress(ImportError, AttributeError):
        _ignore_caches(running, tell)


def _keep_apart(xlac: Any, running: Running, setter: str, getter: str) -> None:
    put, get = xla.binding(setter), xla.binding(getter)

    @functools.wraps(put)
    def set_own(value: Any, /) -> None:
        core = running.here
        if core is None:
            put(value)
        else:
            core.mode.at_launch[setter] = value

    @functools.wraps(get)
    def get_own() -> Any:
        core = running.here
        return get() if core is None else core.mode.at_launch[setter]

    setattr(xlac, setter, set_own)
    setattr(xlac, getter, get_own)


def _keep_eager_apart(xlac: Any, running: Running) -> None:
    put, get = xla.binding("_set_use_eager_mode"), xla.binding("_get_use_eager_mode")

    @functools.wraps(put)
    def set_own(value: bool, /) -> None:
        core = running.here
        if core is None:
            put(value)
        else:
            _change(core, eager=value)

    @functools.wraps(get)
    def get_own() -> Any:
        core = running.here
        return get() if core is None else core.mode.eager

    xlac._set_use_eager_mode = set_own
    xlac._get_use_eager_mode = get_own


def _keep_dtype_apart(running: Running) -> None:
    torch = _torch()
    original = torch.set_default_dtype
    possible = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

    @functools.wraps(original)
    def set_default_dtype(d: Any, /) -> None:
        core = running.here
        if core is None or d not in possible:  # others are for torch to refuse
            original(d)
        else:
            _change(core, dtype=d)

    torch.set_default_dtype = set_default_dtype


def _change(core: Core, **changed: Any) -> None:
    """Let a core go into another room, if that is one."""
    mode = dataclasses.replace(core.mode, **changed)
    if mode == core.mode and mode.holds:
        return
    core.group.rooms.leave(core)
    core.mode = mode
    core.group.rooms.enter(core)


def _torch() -> Any:
    return importlib.import_module("torch")


def _ignore_sessions(
    xlac: Any, running: Running, tell: Callable[[str, dict[str, Any]], None]
) -> None:
    """``torch_xla.compile(max_different_graphs=...)`` takes all cores' operations for one's."""
    say = once(tell)
    for name in (
        "_dynamic_shape_detector_set_max_different_graphs",
        "_dynamic_shape_detector_start_session",
        "_dynamic_shape_detector_end_session",
    ):
        original = xla.binding(name)
        if original is not None:
            setattr(xlac, name, _ignored(original, running, say))


def _ignored(original: Any, running: Running, say: Callable[[str], None]) -> Any:
    @functools.wraps(original)
    def ignored(*args: Any) -> Any:
        if running.here is None:
            return original(*args)
        say(
            "torch_xla.compile(max_different_graphs=...) is not obeyed on simulated cores, "
            "where torch_xla counts the graphs of all cores as one's"
        )
        return None

    return ignored


def _keep_marks_apart(running: Running) -> None:
    profiler: Any = importlib.import_module("torch_xla.debug.profiler")
    put, get = profiler.set_tracer_marked_step, profiler.get_tracer_marked_step

    @functools.wraps(put)
    def set_tracer_marked_step(value: bool) -> None:
        core = running.here
        if core is None:
            put(value)
        else:
            core.mode.marked_step = value

    @functools.wraps(get)
    def get_tracer_marked_step() -> Any:
        core = running.here
        return get() if core is None else core.mode.marked_step

    profiler.set_tracer_marked_step = set_tracer_marked_step
    profiler.get_tracer_marked_step = get_tracer_marked_step


def _ignore_caches(running: Running, tell: Callable[[str, dict[str, Any]], None]) -> None:
    """``xr.initialize_cache`` with a folder for each core, as torch_xla's documentation has it.

    The process has one cache, which the first core's would be; and graphs that it holds already
    would be counted as compiled in one run and not in the next.
    """
    runtime: Any = importlib.import_module("torch_xla.runtime")
    original = runtime.initialize_cache
    say = once(tell)

    @functools.wraps(original)
    def initialize_cache(path: str, readonly: bool = False) -> None:
        core = running.here
        if core is None or (running.share is not None and running.share.one_each):
            original(path, readonly)
            return
        if core.mode.cache or core.launches:
            raise AssertionError("Computation cache has already been initialized")
        core.mode.cache = True
        say(
            "xr.initialize_cache is not obeyed on simulated cores, which share one cache: "
            "each run compiles all its graphs"
        )

    runtime.initialize_cache = initialize_cache
