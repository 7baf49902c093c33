"""What a program must not do with values that mean nothing, and what it is told of its device."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Functions that write weights to disk, and how a note calls them. Everything that saves weights in
#: PyTorch's or the safetensors format ends in one of them.
_SAVES = (("torch", "save"), ("safetensors.torch", "serialize_file"))


def install(note: Callable[[str], None]) -> None:
    """Leave out what writes weights to disk.

    Args:
        note: Takes a sentence for the report, once.
    """
    said: list[str] = []

    def guarded(original: Any) -> Any:
        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            target = args[1] if len(args) > 1 else kwargs.get("f", kwargs.get("filename"))
            if isinstance(target, io.BytesIO):
                return original(*args, **kwargs)  # cores send each other what is pickled so
            if not said:
                said.append("saves were left out: the weights were never computed")
                note(said[0])
            return None

        return save

    for module, name in _SAVES:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            continue
        owner = importlib.import_module(module)
        original = getattr(owner, name, None)
        if original is not None:
            setattr(owner, name, guarded(original))


def answer_as_a_tpu() -> None:
    """Say "TPU" to a program that asks for its kind of device, as a TPU host would.

    ``torch_xla.amp.autocast`` asks too, and does nothing on a CPU (torch_xla 2.9.0): the graph of a
    step in bfloat16 would be one in float32.
    """
    import torch_xla.core.xla_model as xm

    original = xm.xla_device_hw

    @functools.wraps(original)
    def xla_device_hw(device: Any) -> str:  # noqa: ARG001
        return "TPU"

    xm.xla_device_hw = xla_device_hw
