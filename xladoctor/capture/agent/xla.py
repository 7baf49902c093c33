"""The one adapter to torch_xla: every internal that xladoctor listens to is named and wrapped here.

Written against torch_xla 2.9.0. Each name is probed before it is wrapped; :func:`install` says
which are missing, so that another version loses a measurement and not the program. ``tensors.py``
does the same for the methods of ``torch.Tensor`` that move values between host and device.

Facts used (torch_xla 2.9.0, seen by running):

* torch_xla calls its C++ bindings as ``torch_xla._XLAC.<name>`` at call time, so replacing the
  attribute reaches every caller. ``torch_xla.sync``, ``xm.mark_step``, ``torch_xla.compile`` and
  the device loaders all end in ``_xla_step_marker``; ``xm.save``, ``xm.unlazy`` and dynamo in
  ``_xla_sync_multi``; what dynamo compiles goes through ``_xla_warm_up_cache`` and runs by
  ``_run_cached_graph``.
* Device ``xla:<i>`` of a process is its i-th local device; the core's ordinal in the whole run is
  ``_xla_get_device_ordinal("xla:<i>")``.
* A core's main function is called by ``torch_xla._internal.pjrt._run_thread_per_device``, one
  thread per device of the process (or by ``_run_singleprocess`` for ``nprocs=1``).
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

from . import tensors
from .points import (
    COLLECTIVE,
    CORE,
    FEED,
    LAUNCH,
    LOADER,
    RENDEZVOUS,
    STEP,
    WAIT,
    Call,
    Points,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

#: Collectives of ``torch_xla.core.xla_model`` that put an exchange between cores into the graph.
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "all_to_all",
    "collective_broadcast",
    "collective_permute",
    "reduce_scatter",
    "send",
    "recv",
)

#: Bindings that are called and not wrapped, and what is not known without them.
CALLED = {
    "_xla_counter_value": "compilations and fallbacks",
    "_xla_metric_data": "seconds of compilations",
    "_get_executed_fallback_ops": "names of operations that run on the CPU",
    "_xla_metrics_report": "torch_xla's own metrics",
    "_xla_runtime_is_initialized": "which core a thread belongs to",
    "_xla_get_default_device": "which core a thread belongs to",
    "_xla_get_device_ordinal": "which core a device belongs to",
    "_xla_get_replication_devices_count": "how many cores a process has",
    "_set_ir_debug": "lines of the operations of a graph",
    "_get_use_eager_mode": "compilations in eager mode",
}

#: Frames between the recorder and a device loader that ends a graph: the points, and torch_xla's.
_NEAR = 24

#: Originals by the name of the binding, for those who must go past the points.
originals: dict[str, Any] = {}

_thread = threading.local()
_ordinals: dict[object, int] = {}


def binding(name: str) -> Any:
    """An unwrapped C++ binding of torch_xla; None if this version does not have it."""
    found = originals.get(name)
    if found is None:
        found = getattr(importlib.import_module("torch_xla")._XLAC, name, None)
        if found is not None:
            originals[name] = found
    return found


def core_of_device(device: object) -> int | None:
    """The core that a device belongs to.

    Args:
        device: ``torch.device`` or string of the form "xla:3".

    Returns:
        Its ordinal in the whole run; None if there is no runtime yet or no such device.
    """
    core = _ordinals.get(device)
    if core is None:
        name = str(device)
        try:
            core = int(binding("_xla_get_device_ordinal")("xla:0" if name == "xla" else name))
        except Exception:
            return None
        _ordinals[device] = core
    return core


def core_of_thread() -> int | None:
    """The core whose main function this thread runs; None outside of cores."""
    core: int | None = getattr(_thread, "core", None)
    return core


def current_core() -> int | None:
    """The core whose main function this thread runs.

    Returns:
        Its ordinal. In the main thread of a process without cores of its own: that of the default
        device. None in helper threads, and before there is a runtime.
    """
    core: int | None = getattr(_thread, "core", None)
    if core is not None:
        return core
    if threading.current_thread() is not threading.main_thread():
        return None
    try:
        if not binding("_xla_runtime_is_initialized")():
            return None
        return core_of_device(binding("_xla_get_default_device")())
    except Exception:
        return None


def in_device_loader() -> bool:
    """Whether a device loader of torch_xla is among the callers: it ends graphs between batches."""
    frame = sys._getframe(1)
    for _ in range(_NEAR):
        if frame.f_code.co_filename.endswith("parallel_loader.py"):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def before_first_batch() -> bool:
    """Whether a device loader that is watched is among the callers.

    It also ends what the program has left to run before its first batch: no turn of its loop.
    """
    return "next_item" in originals and in_device_loader()


def counter(name: str) -> int:
    """A counter of torch_xla, summed over the cores of this process; 0 if it never counted."""
    return binding("_xla_counter_value")(name) or 0


def fallbacks() -> dict[str, int]:
    """How often each operation has run on the CPU in this process."""
    names = binding("_get_executed_fallback_ops")
    return {name: counter(name) for name in names()} if names is not None else {}


def device_type() -> str | None:
    """What the devices are ("CPU", "TPU"); None if this version does not say."""
    try:
        kind = importlib.import_module("torch_xla.runtime").device_type()
    except Exception:
        return None
    return None if kind is None else str(kind)


def eager() -> bool:
    """Whether every operation runs by itself now (``torch_xla.experimental.eager_mode``)."""
    asked = binding("_get_use_eager_mode")
    return asked is not None and bool(asked())


def in_dynamo() -> bool:
    """Whether torch_xla's bridge to ``torch.compile`` is what runs here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("torch_xla._dynamo"):
            return True
        frame = frame.f_back
    return False


def install(points: Points) -> list[str]:
    """Wrap every internal into its point.

    Args:
        points: Where the calls go.

    Returns:
        The names that this torch (or torch_xla) does not have: not measured.
    """
    wrap = _Wrapper(points)
    _install_bindings(wrap)
    _install_model(wrap)
    _install_cores(wrap)
    _install_loaders(wrap)
    _install_steps(wrap)
    wrap.missing += tensors.install(points, core_of_device, binding)
    wrap.missing += [
        f"torch_xla._XLAC.{name} ({what})" for name, what in CALLED.items() if binding(name) is None
    ]
    return wrap.missing


class _Wrapper:
    """Replaces attributes of modules and classes, and remembers what was not there."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self.missing: list[str] = []

    def replace(self, owner_name: str, name: str, make: Callable[[Any], Any]) -> None:
        """Put ``make(original)`` in the place of ``owner.name``.

        Args:
            owner_name: Module, or "module:attribute" for a class or an extension module in it.
            name: The attribute.
            make: Gets the original and gives what is to stand there.
        """
        module, _, cls = owner_name.partition(":")
        try:
            owner: Any = importlib.import_module(module)
            if cls:
                owner = getattr(owner, cls)
            original = getattr(owner, name)
            # functools.wraps keeps __module__ and __qualname__, so that torch_xla can still pickle
            # the function by name when it starts its processes.
            replacement = functools.wraps(original)(make(original))
        except Exception:
            self.missing.append(f"{owner_name}.{name}")
            return
        setattr(owner, name, replacement)
        originals.setdefault(name, original)


def _install_bindings(wrap: _Wrapper) -> None:
    points = wrap.points

    def step_marker(original: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Any:
            core = core_of_device(args[0]) if args else current_core()
            call = Call(LAUNCH, "_xla_step_marker", core, args, kwargs, {"kind": "sync"})
            return points.run(call, original)

        return launch

    def sync_multi(original: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Any:
            first: Any = (args[0] if args else kwargs.get("tensors")) or ()
            core = core_of_device(first[0].device) if len(first) else current_core()
            call = Call(LAUNCH, "_xla_sync_multi", core, args, kwargs, {"kind": "library"})
            return points.run(call, original)

        return launch

    def wait_device_ops(original: Any) -> Any:
        def wait(*args: Any, **kwargs: Any) -> Any:
            call = Call(WAIT, "_xla_wait_device_ops", current_core(), args, kwargs)
            return points.run(call, original)

        return wait

    def of_dynamo(name: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def launch(*args: Any, **kwargs: Any) -> Any:
                call = Call(LAUNCH, name, current_core(), args, kwargs, {"kind": "library"})
                return points.run(call, original)

            return launch

        return make

    xlac = "torch_xla:_XLAC"
    for name in ("_xla_warm_up_cache", "_run_cached_graph"):
        wrap.replace(xlac, name, of_dynamo(name))
    wrap.replace(xlac, "_xla_step_marker", step_marker)
    wrap.replace(xlac, "_xla_sync_multi", sync_multi)
    wrap.replace(xlac, "_xla_wait_device_ops", wait_device_ops)


def _install_model(wrap: _Wrapper) -> None:
    points = wrap.points

    def collective(name: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def trace(*args: Any, **kwargs: Any) -> Any:
                # Several collectives are built from others: the one the program called counts.
                if getattr(_thread, "in_collective", False) or _compiling():
                    return original(*args, **kwargs)
                _thread.in_collective = True
                try:
                    core = _core_of_tensors(args)
                    core = current_core() if core is None else core
                    return points.run(Call(COLLECTIVE, name, core, args, kwargs), original)
                finally:
                    _thread.in_collective = False

            return trace

        return make

    def rendezvous(original: Any) -> Any:
        def meet(*args: Any, **kwargs: Any) -> Any:
            call = Call(RENDEZVOUS, "xla_rendezvous", current_core(), args, kwargs)
            return points.run(call, original)

        return meet

    for name in COLLECTIVES:
        wrap.replace("torch_xla.core.xla_model", name, collective(name))
    wrap.replace("torch_xla.core.xla_model", "xla_rendezvous", rendezvous)


def _core_of_tensors(values: tuple[Any, ...]) -> int | None:
    """The core of the first device tensor; a backward pass may run in a thread of its own."""
    for value in values:
        for one in value[:1] if isinstance(value, (list, tuple)) else (value,):
            if getattr(one, "is_xla", False):
                return core_of_device(one.device)
    return None


def _compiling() -> bool:
    """Whether dynamo is tracing: it must see torch_xla's own function, not our wrapper."""
    import torch

    return bool(torch.compiler.is_compiling())


class _CoreMain:
    """A core's main function; notes in its thread which core it is."""

    def __init__(self, points: Points, function: Callable[[], Any]) -> None:
        self._points = points
        self._function = function

    def __call__(self) -> Any:
        core = core_of_device(binding("_xla_get_default_device")())
        before = getattr(_thread, "core", None)
        _thread.core = core
        try:
            name = getattr(self._function, "__name__", "core")
            return self._points.run(Call(CORE, name, core), self._function)
        finally:
            _thread.core = before


def _install_cores(wrap: _Wrapper) -> None:
    points = wrap.points

    def thread_per_device(original: Any) -> Any:
        def run(
            local_rank: int, local_world_size: int, fn: Callable[[], Any], initializer_fn: Any
        ) -> Any:
            return original(
                local_rank=local_rank,
                local_world_size=local_world_size,
                fn=_CoreMain(points, fn),
                initializer_fn=initializer_fn,
            )

        return run

    def single_process(original: Any) -> Any:
        def run(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return original(_CoreMain(points, functools.partial(fn, *args, **kwargs)))

        return run

    wrap.replace("torch_xla._internal.pjrt", "_run_thread_per_device", thread_per_device)
    wrap.replace("torch_xla._internal.pjrt", "_run_singleprocess", single_process)


def _install_loaders(wrap: _Wrapper) -> None:
    points = wrap.points

    def loader(what: str, of_device: bool) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def next_batch(*args: Any, **kwargs: Any) -> Any:
                core = core_of_device(args[1]) if of_device and len(args) > 1 else current_core()
                return points.run(Call(LOADER, what, core, args, kwargs), original)

            return next_batch

        return make

    wrap.replace(
        "torch.utils.data.dataloader:_BaseDataLoaderIter", "__next__", loader("DataLoader", False)
    )
    wrap.replace(
        "torch_xla.distributed.parallel_loader:ParallelLoader",
        "next_item",
        loader("ParallelLoader", True),
    )

    def feed(original: Any) -> Any:
        def run(loader: Any) -> Any:
            devices = getattr(loader, "_devices", None) or [None]
            core = None if devices[0] is None else core_of_device(devices[0])
            return points.run(Call(FEED, "ParallelLoader", core, (loader,)), original)

        return run

    wrap.replace("torch_xla.distributed.parallel_loader:ParallelLoader", "_loader_worker", feed)


def _install_steps(wrap: _Wrapper) -> None:
    points = wrap.points

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        core = getattr(_thread, "core", None)
        if core is None:
            device = _device_of(optimizer)
            if device is None:
                return  # an optimizer of CPU parameters is no step of a core
            core = core_of_device(device)
        points.run(Call(STEP, type(optimizer).__name__, core, (optimizer,)), _nothing)

    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(stepped)
    except Exception:
        wrap.missing.append("torch.optim.optimizer.register_optimizer_step_post_hook")


def _device_of(optimizer: Any) -> object | None:
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group.get("params", ()):
            device = parameter.device
            return device if device.type == "xla" else None
    return None


def _nothing(*args: Any) -> None:
    """The original of a point that only tells that something has happened."""
