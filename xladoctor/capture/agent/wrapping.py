"""Wraps every internal of torch_xla that xladoctor listens to into its point.

Written against torch_xla 2.9.0. Each name is probed before it is wrapped; :func:`install` says
which are missing, so that another version loses a measurement and not the program. ``tensors.py``
does the same for the methods of ``torch.Tensor`` that move values between host and device;
``xla.py`` has what is only called.

Facts used (torch_xla 2.9.0, seen by running):

* torch_xla calls its C++ bindings as ``torch_xla._XLAC.<name>`` at call time, so replacing the
  attribute reaches every caller. ``torch_xla.sync``, ``xm.mark_step``, ``torch_xla.compile`` and
  the device loaders all end in ``_xla_step_marker``; ``xm.save``, ``xm.unlazy`` and dynamo in
  ``_xla_sync_multi``; what dynamo compiles goes through ``_xla_warm_up_cache`` and runs by
  ``_run_cached_graph``.
* A core's main function is called by ``torch_xla._internal.pjrt._run_thread_per_device``, one
  thread per device of the process (or by ``_run_singleprocess`` for ``nprocs=1``).
"""

from __future__ import annotations

import functools
import importlib
import threading
from typing import TYPE_CHECKING, Any

from . import optimizers, tensors, xla
from .points import (
    COLLECTIVE,
    CORE,
    FEED,
    LAUNCH,
    LOADER,
    MADE,
    MARK,
    RENDEZVOUS,
    START,
    STEP,
    WAIT,
    Call,
    Points,
)

if TYPE_CHECKING:
    from collections.abc import Callable

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

#: Those of ``torch.distributed._functional_collectives``, of which ``torch.compile`` and tensor
#: parallelism make use; they are told as "functional.all_reduce". Others there are built on these.
FUNCTIONAL = (
    "all_reduce",
    "all_reduce_coalesced",
    "all_gather_tensor",
    "all_gather_tensor_autograd",
    "all_gather_into_tensor_coalesced",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "broadcast",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced",
)

_thread = threading.local()


def install(points: Points) -> list[str]:
    """Wrap every internal into its point.

    Args:
        points: Where the calls go.

    Returns:
        The names that this torch (or torch_xla) does not have: not measured.
    """
    wrap = Wrapper(points)
    _install_bindings(wrap)
    _install_model(wrap)
    _install_cores(wrap)
    _install_loaders(wrap)
    _install_steps(wrap)
    wrap.missing += tensors.install(points, xla.core_of_device, xla.binding)
    wrap.missing += [
        f"torch_xla._XLAC.{name} ({what})"
        for name, what in xla.CALLED.items()
        if xla.binding(name) is None
    ]
    return wrap.missing


class Wrapper:
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
        xla.originals.setdefault(name, original)


def _of_this_core(points: Points, point: str, what: str, **facts: Any) -> Callable[[Any], Any]:
    """Pass a function's calls through a point, as those of the core of the calling thread."""

    def make(original: Any) -> Any:
        def through(*args: Any, **kwargs: Any) -> Any:
            call = Call(point, what, xla.current_core(), args, kwargs, dict(facts))
            return points.run(call, original)

        return through

    return make


def _install_bindings(wrap: Wrapper) -> None:
    points = wrap.points

    def step_marker(original: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Any:
            core = xla.core_of_device(args[0]) if args else xla.current_core()
            call = Call(LAUNCH, "_xla_step_marker", core, args, kwargs, {"kind": "sync"})
            return points.run(call, original)

        return launch

    def sync_multi(original: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Any:
            first: Any = (args[0] if args else kwargs.get("tensors")) or ()
            core = xla.core_of_device(first[0].device) if len(first) else xla.current_core()
            call = Call(LAUNCH, "_xla_sync_multi", core, args, kwargs, {"kind": "library"})
            return points.run(call, original)

        return launch

    xlac = "torch_xla:_XLAC"
    for name in ("_xla_warm_up_cache", "_run_cached_graph"):
        wrap.replace(xlac, name, _of_this_core(points, LAUNCH, name, kind="library"))
    wrap.replace(xlac, "_xla_step_marker", step_marker)
    wrap.replace(xlac, "_xla_sync_multi", sync_multi)
    mark = "_xla_mark_sharding"
    wrap.replace(xlac, mark, _of_this_core(points, MARK, mark))
    wait = "_xla_wait_device_ops"
    wrap.replace(xlac, wait, _of_this_core(points, WAIT, wait))


def _install_model(wrap: Wrapper) -> None:
    points = wrap.points

    def collective(name: str, *, ours: bool = True) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def trace(*args: Any, **kwargs: Any) -> Any:
                # Several collectives are built from others: the one the program called counts.
                if getattr(_thread, "in_collective", False) or _compiling():
                    return original(*args, **kwargs)
                _thread.in_collective = True
                try:
                    core = _core_of_tensors((*args, *kwargs.values()))
                    if core is None and not ours:
                        return original(*args, **kwargs)  # of CPU tensors
                    core = xla.current_core() if core is None else core
                    return points.run(Call(COLLECTIVE, name, core, args, kwargs), original)
                finally:
                    _thread.in_collective = False

            return trace

        return make

    for name in COLLECTIVES:
        wrap.replace("torch_xla.core.xla_model", name, collective(name))
    for name in FUNCTIONAL:
        wrap.replace(
            "torch.distributed._functional_collectives",
            name,
            collective(f"functional.{name}", ours=False),
        )
    meet = "xla_rendezvous"
    wrap.replace("torch_xla.core.xla_model", meet, _of_this_core(points, RENDEZVOUS, meet))


def _core_of_tensors(values: tuple[Any, ...]) -> int | None:
    """The core of the first device tensor; a backward pass may run in a thread of its own."""
    for value in values:
        for one in value[:1] if isinstance(value, (list, tuple)) else (value,):
            if getattr(one, "is_xla", False):
                return xla.core_of_device(one.device)
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
        core = xla.core_of_device(xla.binding("_xla_get_default_device")())
        with xla.as_core(core):
            name = getattr(self._function, "__name__", "core")
            return self._points.run(Call(CORE, name, core), self._function)


def _install_cores(wrap: Wrapper) -> None:
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

    def processes(original: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            # Before it, not around it: what the cores raise is to have no frames of ours.
            points.run(Call(START, "run_multiprocess", None), _nothing)
            return original(*args, **kwargs)

        return run

    wrap.replace("torch_xla._internal.pjrt", "run_multiprocess", processes)
    wrap.replace("torch_xla._internal.pjrt", "_run_thread_per_device", thread_per_device)
    wrap.replace("torch_xla._internal.pjrt", "_run_singleprocess", single_process)


def install_data_loader(wrap: Wrapper, current_core: Callable[[], int | None]) -> None:
    """Wrap PyTorch's DataLoader: where one is made, and each batch that is asked for.

    Args:
        wrap: Takes the points.
        current_core: Gives the core of the calling thread.
    """
    points = wrap.points

    def loader(original: Any) -> Any:
        def next_batch(*args: Any, **kwargs: Any) -> Any:
            return points.run(Call(LOADER, "DataLoader", current_core(), args, kwargs), original)

        return next_batch

    def making(original: Any) -> Any:
        def make(loader: Any, /, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            points.run(Call(MADE, "DataLoader", None, (loader,)), _nothing)

        return make

    wrap.replace("torch.utils.data.dataloader:_BaseDataLoaderIter", "__next__", loader)
    wrap.replace("torch.utils.data.dataloader:DataLoader", "__init__", making)


def _install_loaders(wrap: Wrapper) -> None:
    points = wrap.points
    install_data_loader(wrap, xla.current_core)

    def of_device(original: Any) -> Any:
        def next_batch(*args: Any, **kwargs: Any) -> Any:
            core = xla.core_of_device(args[1]) if len(args) > 1 else xla.current_core()
            return points.run(Call(LOADER, "ParallelLoader", core, args, kwargs), original)

        return next_batch

    wrap.replace("torch_xla.distributed.parallel_loader:ParallelLoader", "next_item", of_device)
    for_device = "torch_xla.distributed.parallel_loader:MpDeviceLoader"
    wrap.replace(for_device, "__init__", _of_this_core(points, MARK, "MpDeviceLoader"))
    wrap.replace(for_device, "__iter__", _of_this_core(points, MARK, "iter"))

    def feed(original: Any) -> Any:
        def run(loader: Any, /) -> Any:
            devices = getattr(loader, "_devices", None) or [None]
            core = None if devices[0] is None else xla.core_of_device(devices[0])
            return points.run(Call(FEED, "ParallelLoader", core, (loader,)), original)

        return run

    wrap.replace("torch_xla.distributed.parallel_loader:ParallelLoader", "_loader_worker", feed)


def _install_steps(wrap: Wrapper) -> None:
    def core_of(optimizer: Any) -> tuple[int | None] | None:
        core = xla.core_of_thread()
        if core is not None:
            return (core,)
        device = device_of(optimizer, "xla")
        return None if device is None else (xla.core_of_device(device),)

    install_steps(wrap, core_of)


def install_steps(wrap: Wrapper, core_of: Callable[[Any], tuple[int | None] | None]) -> None:
    """See the steps of all optimizers.

    Args:
        wrap: Takes the points.
        core_of: Gives the core of an optimizer, as the only member of a tuple; None for one of
            parameters on the CPU, whose step is none of a core.
    """
    points = wrap.points

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        found = core_of(optimizer)
        if found is None:
            return
        (core,) = found
        points.run(Call(STEP, type(optimizer).__name__, core, (optimizer,)), _nothing)

    try:
        optimizers.after_step(stepped)
    except Exception:
        wrap.missing.append("torch.optim.optimizer.register_optimizer_step_post_hook")


def device_of(optimizer: Any, kind: str) -> object | None:
    """The device of an optimizer's parameters if it is of a kind ("xla"), else None."""
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group.get("params", ()):
            device = parameter.device
            return device if device.type == kind else None
    return None


def _nothing(*args: Any) -> None:
    """The original of a point that only tells that something has happened."""
