"""In-place writes to memory that is seen several times.

torch refuses to write to an expanded tensor, or writes once; XLA applies the write once for each
repetition, and only a write that meets each piece of memory once is right. XLA tensors have strides
as if each had memory of its own (torch_xla 2.9.0, both seen by running): so what is expanded is
marked, and what is written is laid out again without a device.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .memory import Memory, place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cores import Core

#: What writes to all of a tensor.
_WRITES = (
    *("add_", "sub_", "mul_", "div_", "copy_", "fill_", "zero_", "masked_fill_", "clamp_"),
    *("__iadd__", "__isub__", "__imul__", "__itruediv__"),
)
_EXPANDS = ("expand", "expand_as", "broadcast_to")
#: Attribute of an expanded tensor: the shape of what was expanded.
_FROM = "_xladoctor_expanded_from"


def install(memory: Memory) -> None:
    """Mark what is expanded, and look at writes to it; nothing else of other tensors is asked.

    Args:
        memory: Of the cores.
    """
    import torch

    look = _Look(memory)
    for owner in (torch, torch.Tensor):
        for name in _EXPANDS:
            _replace(owner, name, _marking)
    for name in _WRITES:
        _replace(torch.Tensor, name, look.whole)
    _replace(torch.Tensor, "__setitem__", look.part)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, functools.wraps(original)(make(original)))


def _marking(original: Any) -> Any:
    def expand(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        given: Any = args[0] if args else kwargs.get("input")
        if getattr(result, "is_xla", False) and result.shape != given.shape:
            setattr(result, _FROM, tuple(given.shape))
        return result

    return expand


class _Look:
    """Tells of writes to what was marked."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def whole(self, original: Any) -> Any:
        """In the place of a method that writes to all of a tensor."""

        def write(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            if hasattr(tensor, _FROM):
                self._look(tensor, ..., original.__name__)
            return original(tensor, *args, **kwargs)

        return write

    def part(self, original: Any) -> Any:
        """In the place of ``t[key] = value``; ``t[:, 4:] += 1`` ends with it too."""

        def write(tensor: Any, key: Any, value: Any, /) -> Any:
            if hasattr(tensor, _FROM):
                self._look(tensor, key, "an assignment to a part")
            return original(tensor, key, value)

        return write

    def _look(self, tensor: Any, key: Any, operation: str) -> None:
        core: Core | None = self._memory.here()
        if core is None or _has_tensors(key):
            return
        import torch

        with self._memory.guarded(core, "expanded"):
            before = torch.empty(getattr(tensor, _FROM), device="meta")
            layout = before.expand(tensor.shape)[key]
            times = [
                size
                for size, stride in zip(layout.shape, layout.stride(), strict=True)
                if size > 1 and not stride
            ]
            if times and layout.numel():
                self._memory.tell(
                    core,
                    "expanded-write",
                    place_of(core),
                    operation=operation,
                    times=max(times),
                )


def _has_tensors(key: Any) -> bool:
    """Whether a key picks by values: then what is written is no view."""
    return any(hasattr(one, "is_xla") for one in (key if isinstance(key, tuple) else (key,)))
