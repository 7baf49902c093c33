"""Where values cross between host and device: the methods of ``torch.Tensor`` and the fallbacks.

Part of the adapter, with ``wrapping.py`` and ``xla.py``, written against torch and torch_xla 2.9.0.

Facts used (seen by running):

* ``.item()``, ``bool(t)``, ``float(t)`` and every operation that has no XLA kernel fetch their
  values through the operator ``aten::_to_cpu``, whose XLA kernel does what
  ``_XLAC._xla_get_cpu_tensors`` does. Overriding that one operator sees them all, also those made
  in C++ or in a library, and costs nothing elsewhere.
* ``.cpu()``, ``.to("cpu")``, ``.tolist()``, ``cpu_tensor.copy_(t)``, ``cpu_tensor[i] = t`` do not
  pass there: they are wrapped as methods.
* What ``aten::_to_cpu`` gives a fallback lives until the fallback has computed its results and sent
  them to the device (torch's ``cpu_fallback`` holds it so long): its end is the fallback's end.
* A fallback increments the counter of its operation just before ``aten::_to_cpu``: the counter that
  has moved names it. ``aten::_local_scalar_dense`` is ``.item()`` and the like.

A read inside a read (``print`` calls ``repr`` calls ``.to``) is one read: the outermost counts.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from .points import FALLBACK, READ, UPLOAD, Call, Points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Methods that bring a value to the host whenever the tensor is on an XLA device.
READS = (
    "item",
    "cpu",
    "tolist",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
    "__format__",
    "__repr__",
)

#: So many places at which operations ran on the CPU are remembered.
MOST_SITES = 10_000

SCALAR_READ = "aten::_local_scalar_dense"

#: In the place of an operation's name: a further list of tensors of the operation before.
MORE_INPUTS = "?"

_thread = threading.local()
#: torch drops the override when its library object dies.
_library: list[Any] = []


def reading() -> bool:
    """Whether this thread is inside a read, a fallback or an upload already."""
    return getattr(_thread, "inside", False)


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """What crosses in here is no doing of the program, and is not counted."""
    before = reading()
    _thread.inside = True
    try:
        yield
    finally:
        _thread.inside = before


def crossing_tensors(call: Call) -> int:
    """How many tensors a read or an upload brings to the other side."""
    first = call.args[0] if call.args else None
    return len(first) if isinstance(first, (list, tuple)) else 1


def install(
    points: Points,
    core_of_device: Callable[[object], int | None],
    binding: Callable[[str], Any],
) -> list[str]:
    """Wrap the methods and the operator.

    Args:
        points: Where the calls go.
        core_of_device: Finds the core of a ``torch.device``.
        binding: Finds an unwrapped C++ binding of torch_xla by name.

    Returns:
        The names that could not be wrapped.
    """
    crossing = _Crossing(points, core_of_device, "xla", operator.attrgetter("is_xla"))
    missing = crossing.install_methods()
    xlac = importlib.import_module("torch_xla")._XLAC
    for name, make in {
        "_xla_get_cpu_tensors": crossing.get_cpu_tensors,
        "_xla_tensors_from_aten": crossing.tensors_from_aten,
    }.items():
        original = binding(name)
        if original is None:
            missing.append(f"torch_xla._XLAC.{name}")
        else:
            setattr(xlac, name, functools.wraps(original)(make(original)))
    try:
        _override_to_cpu(crossing, binding)
    except Exception:
        missing.append("aten::_to_cpu")
    return missing


def install_for(
    points: Points,
    kind: str,
    core_of_device: Callable[[object], int | None],
    name_of_fallback: Callable[[], str],
) -> list[str]:
    """Wrap the methods and the operator for a device that PyTorch has no word of its own for.

    Args:
        points: Where the calls go.
        kind: Its tensors' ``device.type`` ("tpu").
        core_of_device: Finds the core of a ``torch.device``.
        name_of_fallback: What an operation is called that fetches its inputs to run on the CPU.

    Returns:
        The names that could not be wrapped.
    """
    crossing = _Crossing(points, core_of_device, kind, lambda tensor: tensor.device.type == kind)
    missing = crossing.install_methods()

    def to_cpu(tensors: Sequence[Any]) -> Any:
        def fetch(values: Sequence[Any]) -> list[Any]:
            return [value.cpu() for value in values]

        if reading() or not len(tensors):
            return fetch(tensors)
        device = tensors[0].device
        return crossing.cross(FALLBACK, name_of_fallback(), device, fetch, (tensors,), {})

    try:
        _implement("PrivateUse1", to_cpu)
    except Exception:
        missing.append("aten::_to_cpu")
    return missing


def when_gone(fetched: Sequence[Any], function: Callable[[], None]) -> bool:
    """Have a function called when tensors that are about to go to C++ are no longer used there.

    Args:
        fetched: What ``aten::_to_cpu`` gives a fallback.
        function: Takes nothing; what it raises is lost.

    Returns:
        False if their end would say nothing, because others hold them as well.
    """
    try:
        for tensor in fetched:
            # More than one use: a tensor of the program that was waiting to be sent.
            if tensor._use_count() == 1:
                tensor._xladoctor_end = _End(function)
                return True
    except Exception:
        return False
    return False


class _End:
    """Calls a function when it dies."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def __del__(self) -> None:
        try:  # noqa: SIM105 - when Python ends, modules may be gone
            self._function()
        except Exception:
            pass


class _Crossing:
    """Makes the wrappers; each passes one call, the outermost, through its point."""

    def __init__(
        self,
        points: Points,
        core_of_device: Callable[[object], int | None],
        kind: str,
        on_device: Callable[[Any], bool],
    ) -> None:
        self._points = points
        self._core_of_device = core_of_device
        self._kind = kind
        self._on_device = on_device

    def install_methods(self) -> list[str]:
        """Wrap the methods of ``torch.Tensor``; returns those that could not be."""
        import torch

        missing = []
        makers = {name: self.read(name) for name in READS}
        makers |= {"to": self.to, "copy_": self.copy, "__setitem__": self.set_item}
        for name, make in makers.items():
            try:
                original = getattr(torch.Tensor, name)
                setattr(torch.Tensor, name, functools.wraps(original)(make(original)))
            except Exception:  # noqa: PERF203
                missing.append(f"torch.Tensor.{name}")
        return missing

    def cross(
        self,
        point: str,
        what: str,
        device: object,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a crossing through its point, or straight if it is part of another one."""
        if reading():
            return original(*args, **kwargs)
        _thread.inside = True
        try:
            call = Call(point, what, self._core_of_device(device), args, kwargs)
            return self._points.run(call, original)
        finally:
            _thread.inside = False

    def read(self, name: str) -> Callable[[Any], Any]:
        """For a method that always brings the value of a device's tensor to the host."""
        what = name.strip("_")
        on_device = self._on_device

        def make(original: Any) -> Any:
            def method(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
                if not on_device(tensor):
                    return original(tensor, *args, **kwargs)
                return self.cross(READ, what, tensor.device, original, (tensor, *args), kwargs)

            return method

        return make

    def to(self, original: Any) -> Any:
        """``Tensor.to``: a read, an upload, or neither, depending on both sides."""
        import torch

        parse = torch._C._nn._parse_to
        dtype = torch.dtype
        kind, on_device = self._kind, self._on_device

        def method(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            if (args and isinstance(args[0], dtype)) or reading():
                return original(tensor, *args, **kwargs)
            try:
                target = parse(*args, **_without_copy(kwargs))[0]
            except Exception:
                target = None  # the original says what is wrong with the arguments
            here = on_device(tensor)
            if target is None or (target.type == kind) == here:
                return original(tensor, *args, **kwargs)
            if here:
                if target.type == "meta":
                    return original(tensor, *args, **kwargs)
                return self.cross(READ, "to", tensor.device, original, (tensor, *args), kwargs)
            return self.cross(UPLOAD, "to", target, original, (tensor, *args), kwargs)

        return method

    def copy(self, original: Any) -> Any:
        """``Tensor.copy_``: the same, for a copy into an existing tensor."""
        import torch

        on_device, tensor_class = self._on_device, torch.Tensor

        def method(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            source: Any = args[0] if args else kwargs.get("src")
            from_device = isinstance(source, tensor_class) and on_device(source)
            if from_device == on_device(tensor):
                return original(tensor, *args, **kwargs)
            if not args:
                args = (kwargs.pop("src"),)
            values = (tensor, *args)
            if from_device:
                return self.cross(READ, "copy_", source.device, original, values, kwargs)
            return self.cross(UPLOAD, "copy_", tensor.device, original, values, kwargs)

        return method

    def set_item(self, original: Any) -> Any:
        """``tensor[index] = value``, which torch copies in C++."""
        import torch

        on_device, tensor_class = self._on_device, torch.Tensor

        def method(tensor: Any, index: Any, value: Any, /) -> Any:
            if not isinstance(value, tensor_class):
                return original(tensor, index, value)
            from_device = on_device(value)
            if from_device == on_device(tensor):
                return original(tensor, index, value)
            point, device = (READ, value.device) if from_device else (UPLOAD, tensor.device)
            return self.cross(point, "setitem", device, original, (tensor, index, value), {})

        return method

    def get_cpu_tensors(self, original: Any) -> Any:
        """``_xla_get_cpu_tensors``: how ``xm.save`` and ``xm.mesh_reduce`` read."""

        def fetch(tensors: Sequence[Any], /) -> Any:
            if not len(tensors):
                return original(tensors)
            what = "get_cpu_tensors"
            return self.cross(READ, what, tensors[0].device, original, (tensors,), {})

        return fetch

    def tensors_from_aten(self, original: Any) -> Any:
        """``_xla_tensors_from_aten``: how the device loaders upload a batch."""

        def upload(tensors: Any, devices: Any, /, *args: Any, **kwargs: Any) -> Any:
            device = devices[0] if devices else "xla:0"
            values = (tensors, devices, *args)
            return self.cross(UPLOAD, "tensors_from_aten", device, original, values, kwargs)

        return upload


def _without_copy(kwargs: dict[str, Any]) -> dict[str, Any]:
    if "copy" in kwargs:
        return {name: value for name, value in kwargs.items() if name != "copy"}
    return kwargs


class _Fallbacks:
    """Names the operation behind a call of ``aten::_to_cpu`` by the counter that has moved.

    Several cores of one process share the counters, so more than one may have moved; each call
    takes one of the units that are waiting, so the sums are right whatever happens.
    """

    def __init__(self, binding: Callable[[str], Any]) -> None:
        self._names = binding("_get_executed_fallback_ops")
        self._value = binding("_xla_counter_value")
        # What has run before is not waiting for anyone.
        self._seen: dict[str, int] = {name: self._value(name) or 0 for name in self._names()}
        self._waiting: dict[str, int] = {}
        self._known: dict[tuple[Any, int], str] = {}
        self._lock = threading.Lock()

    def take(self, scalar: bool, site: tuple[Any, int] | None) -> str:
        """The operation that calls now.

        Args:
            scalar: Whether it is known to be a scalar read.
            site: Code object and line that called, to tell several candidates apart.

        Returns:
            Its name ("aten::nonzero"), or :data:`MORE_INPUTS` if no counter has moved.
        """
        with self._lock:
            for name in self._names():
                value = self._value(name) or 0
                before = self._seen.get(name, 0)
                if value != before:
                    self._seen[name] = value
                    if value > before:  # metrics.clear_all() sets the counters back
                        self._waiting[name] = self._waiting.get(name, 0) + value - before
            name = self._choose(scalar, site)
            if name == MORE_INPUTS:
                return name
            left = self._waiting[name] - 1
            if left:
                self._waiting[name] = left
            else:
                del self._waiting[name]
            if site is not None:
                if len(self._known) >= MOST_SITES:
                    self._known.clear()
                self._known[site] = name
            return name

    def _choose(self, scalar: bool, site: tuple[Any, int] | None) -> str:
        if scalar:
            return SCALAR_READ if SCALAR_READ in self._waiting else MORE_INPUTS
        known = self._known.get(site) if site is not None else None
        if known in self._waiting:
            return known
        # A scalar read that no wrapped method has announced is rarer than an operation.
        others = [name for name in self._waiting if name != SCALAR_READ]
        return (others or list(self._waiting) or [MORE_INPUTS])[0]


def _site() -> tuple[Any, int] | None:
    """Code object and line that called the override; None in an autograd thread."""
    try:
        frame = sys._getframe(2)
    except ValueError:
        return None
    return frame.f_code, frame.f_lineno


def _override_to_cpu(crossing: _Crossing, binding: Callable[[str], Any]) -> None:
    fetch = binding("_xla_get_cpu_tensors")
    if None in (fetch, binding("_get_executed_fallback_ops"), binding("_xla_counter_value")):
        raise LookupError("without these no read can be told from a fallback")
    fallbacks = _Fallbacks(binding)

    def take(scalar: bool, site: tuple[Any, int] | None) -> str:
        try:
            return fallbacks.take(scalar, site)
        except Exception:
            return MORE_INPUTS

    def to_cpu(tensors: Sequence[Any]) -> Any:
        if reading():
            take(True, None)
            return fetch(tensors)
        name = take(False, _site())
        device = tensors[0].device if len(tensors) else "xla:0"
        point = READ if name == SCALAR_READ else FALLBACK
        return crossing.cross(point, name, device, fetch, (tensors,), {})

    _implement("XLA", to_cpu)


def _implement(key: str, to_cpu: Callable[[Sequence[Any]], Any]) -> None:
    """Put a function in the place of ``aten::_to_cpu`` for a dispatch key of torch."""
    import torch

    library = torch.library.Library("aten", "IMPL", key)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces every override once
        library.impl("_to_cpu", to_cpu, allow_override=True)
    _library.append(library)
