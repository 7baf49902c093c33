"""What frameworks ask before they agree to run on XLA devices, answered for simulated cores.

Lightning (2.6) takes ``accelerator="tpu"`` when ``torch_xla._internal.tpu.num_available_devices``
counts some, and that number for ``devices="auto"``; it looks at the PCI bus, so on the CPU it
finds none. Its launcher and its strategy work on any XLA device.
"""

from __future__ import annotations

import importlib
from typing import Any


def install(cores: int) -> None:
    """Let the simulated cores be found; what this torch_xla does not have is left alone."""
    try:
        tpu: Any = importlib.import_module("torch_xla._internal.tpu")
    except ImportError:
        return

    def num_available_devices() -> int:
        """The simulated cores stand for the devices of a TPU host."""
        return cores

    if hasattr(tpu, "num_available_devices"):
        tpu.num_available_devices = num_available_devices
