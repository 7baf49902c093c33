"""What torch_xla can only do or say on a TPU, where simulated cores stand for one.

Each of these raises on the CPU, or does nothing, and is harmless on a TPU (torch_xla 2.9.0: every
public function of ``torch_xla``, its ``xla_model``, ``runtime``, ``amp``, ``debug`` and ``utils``
was called on simulated cores).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import resource
import sys
from typing import TYPE_CHECKING, Any

from ..agent import xla
from .running import once

if TYPE_CHECKING:
    from collections.abc import Callable


def install(tell: Callable[[str, dict[str, Any]], None]) -> None:
    """Give the answers; what this torch_xla does not have is left alone.

    Args:
        tell: Told once, as "not-obeyed", if the program asks for a device's memory.
    """
    with contextlib.suppress(ImportError, AttributeError):
        _memory(tell)
    with contextlib.suppress(ImportError, AttributeError):
        _autocast()
    with contextlib.suppress(ImportError, AttributeError):
        _runtime()
    with contextlib.suppress(ImportError, AttributeError):
        _replication()
    with contextlib.suppress(ImportError, AttributeError):
        _places()


def _memory(tell: Callable[[str, dict[str, Any]], None]) -> None:
    """``xm.get_memory_info``: XLA's CPU client has no statistics of its own."""
    xlac = importlib.import_module("torch_xla")._XLAC
    original = xlac._xla_memory_info
    say = once(tell)

    @functools.wraps(original)
    def memory_info(device: str, /) -> dict[str, int]:
        xla.binding("_xla_get_device_ordinal")(device)  # refuses what is no device, as ever
        say(
            "xm.get_memory_info tells the memory of the process that holds all simulated "
            "cores: the memory of a device is not simulated"
        )
        return _memory_of_process()

    xlac._xla_memory_info = memory_info


def _memory_of_process() -> dict[str, int]:
    """Bytes that this process holds, that it has held at most, and that this machine has."""
    page = os.sysconf("SC_PAGE_SIZE")
    # Kilobytes on Linux, bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    used = peak
    with contextlib.suppress(OSError), open("/proc/self/statm") as statm:  # noqa: PTH123
        used = int(statm.read().split()[1]) * page
    limit = os.sysconf("SC_PHYS_PAGES") * page
    return {"bytes_used": used, "bytes_limit": limit, "peak_bytes_used": max(peak, used)}


def _autocast() -> None:
    """``torch_xla.amp.autocast`` is that of torch, to bfloat16, where the device is a TPU."""
    module: Any = importlib.import_module("torch_xla.amp.autocast_mode")
    module.xm = _OnTpu(module.xm)


class _OnTpu:
    """``torch_xla.core.xla_model`` with a TPU as every device's hardware."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def xla_device_hw(self, device: Any) -> str:
        """For a device that there is."""
        self._original.xla_device_hw(device)
        return "TPU"


def _runtime() -> None:
    runtime: Any = importlib.import_module("torch_xla.runtime")
    supported, master = runtime.is_bf16_supported, runtime.get_master_ip

    @functools.wraps(supported)
    def is_bf16_supported() -> bool:
        return True

    @functools.wraps(master)
    def get_master_ip() -> str:
        return "localhost"

    runtime.is_bf16_supported = is_bf16_supported
    runtime.get_master_ip = get_master_ip


def _replication() -> None:
    """``xm.set_replication(device, [device])``: on a TPU that is every device of the process."""
    model: Any = importlib.import_module("torch_xla.core.xla_model")
    original = model.xla_replication_devices

    @functools.wraps(original)
    def xla_replication_devices(local_devices: Any = None) -> Any:
        if xla.core_of_thread() is not None and local_devices is not None:
            here = [str(one) for one in local_devices]
            if here == [xla.binding("_xla_get_default_device")()]:
                local_devices = model.get_xla_supported_devices()
        return original(local_devices)

    model.xla_replication_devices = xla_replication_devices


def _places() -> None:
    """``xs.HybridMesh`` asks where in its slice each TPU stands: here they stand in a row."""
    sharding: Any = importlib.import_module("torch_xla.distributed.spmd.xla_sharding")
    mesh: Any = sharding.HybridMesh
    original = mesh._get_physical_tpu_mesh

    @functools.wraps(original)
    def in_a_row(self: Any, devices: Any) -> Any:
        if all("coords" in one for one in self.device_attributes):
            return original(self, devices)
        return sharding.np.reshape(devices, (-1, 1, 1))

    mesh._get_physical_tpu_mesh = in_a_row
