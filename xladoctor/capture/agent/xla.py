"""What the agent asks torch_xla: every binding that is called, and whose core a thread is.

With ``wrapping.py`` and ``tensors.py`` the one adapter to torch_xla, written against torch_xla
2.9.0. A name is looked for before it is used, so that another version loses a measurement and not
the program.

Device ``xla:<i>`` of a process is its i-th local device; the core's ordinal in the whole run is
``_xla_get_device_ordinal("xla:<i>")`` (torch_xla 2.9.0, seen by running).
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

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
    "_get_xla_sharding_spec": "shardings of SPMD programs",
}

#: Frames between the recorder and a device loader that ends a graph: the points, and torch_xla's.
_NEAR = 24

#: Originals by the name of the binding, for those who must go past the points.
originals: dict[str, Any] = {}

_signatures: dict[str, inspect.Signature] = {}
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


def arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names that torch_xla gives them, defaults filled in.

    Args:
        name: Of a function in Python that ``wrapping`` has wrapped ("all_reduce").
        args: As the program passed them.
        kwargs: The same.

    Returns:
        Parameter to value, in torch_xla's order; the original takes them as keywords.

    Raises:
        TypeError: The original would refuse them, with the same words.
    """
    signature = _signatures.get(name)
    if signature is None:
        signature = _signatures[name] = inspect.signature(originals[name])
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}(): {error}") from None
    bound.apply_defaults()
    return bound.arguments


def core_of_device(device: object) -> int | None:
    """The core that a device belongs to.

    Args:
        device: ``torch.device`` or string of the form "xla:3"; "xla" is the calling thread's.

    Returns:
        Its ordinal in the whole run; None if there is no runtime yet or no such device.
    """
    core = _ordinals.get(device)
    if core is None:
        name = str(device)
        try:
            if name == "xla":  # whatever is the default of the calling thread
                default = binding("_xla_get_default_device")()
                return int(binding("_xla_get_device_ordinal")(default))
            core = int(binding("_xla_get_device_ordinal")(name))
        except Exception:
            return None
        _ordinals[device] = core
    return core


def core_of_thread() -> int | None:
    """The core whose main function this thread runs; None outside of cores."""
    core: int | None = getattr(_thread, "core", None)
    return core


def become_core(core: int) -> None:
    """The calling thread runs a core's main function from now on."""
    _thread.core = core


@contextlib.contextmanager
def as_core(core: int | None) -> Iterator[None]:
    """Run a core's main function in this thread."""
    before = core_of_thread()
    _thread.core = core
    try:
        yield
    finally:
        _thread.core = before


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

    It also ends what the program has left to run before its first batch: no iteration of its loop.
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


def spmd() -> bool:
    """Whether the program is one program for all devices (``xr.use_spmd()``)."""
    runtime = sys.modules.get("torch_xla.runtime")
    return runtime is not None and bool(runtime.is_spmd())


def in_dynamo() -> bool:
    """Whether torch_xla's bridge to ``torch.compile`` is what runs here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("torch_xla._dynamo"):
            return True
        frame = frame.f_back
    return False
