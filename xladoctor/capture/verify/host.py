"""Plain PyTorch in the place of XLA devices: every tensor stays in the host's memory.

torch_xla itself runs with one device on which nothing is ever put: where a program names an XLA
device it gets the CPU, and the bindings that take tensors do with them what they would do with
device tensors. All else (launchers, loaders, steps, saving) is torch_xla's own code.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Functions that give a device, by module.
_DEVICES = {
    "torch_xla": ("device",),
    "torch_xla.torch_xla": ("device",),
    "torch_xla.core.xla_model": ("xla_device",),
}
#: Functions of ``torch_xla.core.xla_model`` that one core leaves as it is given to them.
_UNCHANGED = ("all_gather", "collective_permute", "reduce_scatter", "all_to_all", "send")
#: Functions that mark how tensors are divided over devices.
_SHARDING = (
    "mark_sharding",
    "mark_sharding_with_gradients",
    "enable_manual_sharding",
    "clear_sharding",
)


def install() -> None:
    """Begin, in this process."""
    import torch

    cpu = torch.device("cpu")
    for module, names in _DEVICES.items():
        for name in names:
            _replace(module, name, lambda *_args, **_kwargs: cpu)
    model = "torch_xla.core.xla_model"
    # Lightning asks it whether it may run.
    _replace("torch_xla._internal.tpu", "num_available_devices", lambda: 1)
    _replace(model, "xla_device_hw", lambda *_args: "CPU")
    _replace(model, "set_replication", lambda *_args: None)
    _replace(model, "xla_real_devices", lambda *_args: ["CPU:0"])
    _replace(model, "is_xla_tensor", lambda _tensor: True)
    _replace(model, "collective_broadcast", lambda tensors, *_args, **_kwargs: tensors)
    _replace(model, "unlazy", lambda _tensors: None)
    for name in ("local_ordinal", "global_ordinal"):
        _replace("torch_xla.runtime", name, lambda: 0)
    for name in _UNCHANGED:
        _replace(model, name, _first_tensor)
    for name in _SHARDING:
        _replace("torch_xla.distributed.spmd", name, lambda tensor, *_args, **_kwargs: tensor)
        _replace(
            "torch_xla.distributed.spmd.xla_sharding",
            name,
            lambda tensor, *_args, **_kwargs: tensor,
        )
    _bindings()
    _autocast()


def enter() -> None:
    """The calling thread begins: what it makes on an XLA device it makes on the CPU."""
    _mode().__enter__()


def _replace(module: str, name: str, function: Callable[..., Any]) -> None:
    try:
        owner = importlib.import_module(module)
        original = getattr(owner, name)
    except (ImportError, AttributeError):
        return
    if callable(original):
        functools.update_wrapper(function, original)
    setattr(owner, name, function)


def _first_tensor(*args: Any, **kwargs: Any) -> Any:
    """What a collective gives one core: the tensor itself."""
    import torch

    given = [*args, *kwargs.values()]
    found = next(one for one in given if isinstance(one, (torch.Tensor, list)))
    if isinstance(found, list):
        return [one.clone() for one in found]
    return found.clone()


def _bindings() -> None:
    """What torch_xla's own code asks of device tensors, done with those of the host."""
    import torch_xla

    bindings: Any = torch_xla._XLAC

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    def copies(tensors: Any, *_args: Any, **_kwargs: Any) -> list[Any]:
        return [one.detach().clone() for one in tensors]

    for name in ("_xla_sync_multi", "_xla_optimization_barrier_", "_xla_wait_device_ops"):
        setattr(bindings, name, nothing)
    bindings._get_xla_sharding_spec = lambda _tensor: ""  # none: FSDPv2 asks it of each parameter
    bindings._get_xla_sharding_type = nothing
    bindings._xla_get_cpu_tensors = copies
    bindings._xla_tensors_from_aten = copies


def _autocast() -> None:
    """``torch.autocast("xla")`` and ``torch_xla.amp.autocast`` as the CPU's."""
    import torch

    kind = torch.amp.autocast_mode.autocast
    make = kind.__init__

    @functools.wraps(make)
    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        make(self, "cpu" if device_type == "xla" else device_type, *args, **kwargs)

    kind.__init__ = init
    try:
        amp: Any = importlib.import_module("torch_xla.amp.autocast_mode")
    except ImportError:
        return

    @functools.wraps(amp.autocast.__init__)
    def of_torch_xla(
        self: Any,
        device: Any,  # noqa: ARG001
        enabled: bool = True,
        dtype: Any = None,
        cache_enabled: bool | None = None,
    ) -> None:
        make(self, "cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    amp.autocast.__init__ = of_torch_xla


def _mode() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    class OnHost(TorchFunctionMode):  # type: ignore[misc]
        """Puts the CPU wherever an XLA device is named."""

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func is torch.device:  # also torch.device("xla", 0)
                named = any(map(_names_xla, (*args, *kwargs.values())))
                return torch.device("cpu") if named else func(*args, **kwargs)
            if "device" in kwargs:
                kwargs["device"] = _here(kwargs["device"])
            if any(map(_names_xla, args)):
                args = tuple(_here(one) for one in args)
            return func(*args, **kwargs)

    return OnHost()


def _names_xla(value: Any) -> bool:
    import torch

    if isinstance(value, torch.device):
        return bool(value.type == "xla")
    return isinstance(value, str) and (value == "xla" or value.startswith("xla:"))


def _here(value: Any) -> Any:
    import torch

    return torch.device("cpu") if _names_xla(value) else value
