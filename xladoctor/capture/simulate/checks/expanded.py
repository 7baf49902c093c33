"""In-place writes to memory that is seen several times.

torch refuses to write to an expanded tensor, or writes once; XLA applies the write once for each
repetition, and only a write that meets each piece of memory once is right. XLA tensors have strides
as if each had memory of its own (torch_xla 2.9.0, both seen by running): so what is written is laid
out again without a device, from what it is a view of.
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
_PART = "__setitem__"


def install(memory: Memory) -> None:
    """Look at writes to views that have more elements than what they are views of.

    Args:
        memory: Of the cores.
    """
    import torch

    look = _Look(memory)
    for name in (*_WRITES, _PART):
        original = getattr(torch.Tensor, name, None)
        if original is not None:
            setattr(torch.Tensor, name, _Watched(original, look))


class _Watched:
    """A method that is looked at where it is taken from a tensor, and called as torch's own.

    No frame of ours is on the stack when it runs: torch_xla notes the innermost line of Python as
    the one that an operation is from.
    """

    def __init__(self, original: Any, look: _Look) -> None:
        functools.update_wrapper(self, original)
        self._original = original
        self._look = look

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._original(*args, **kwargs)

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        if tensor is not None and tensor.is_xla:
            base = tensor._base
            if base is not None and base.numel() < tensor.numel():
                return self._look.at(tensor, self._original)
        return self._original.__get__(tensor, kind)


class _Look:
    """Tells of writes to expanded tensors."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def at(self, tensor: Any, original: Any) -> Callable[..., Any]:
        """What is called in the place of a method of an expanded tensor."""

        def write(*args: Any, **kwargs: Any) -> Any:
            if original.__name__ != _PART:
                self._look(tensor, ..., original.__name__)
            elif args:  # ``t[:, 4:] += 1`` ends with it too
                self._look(tensor, args[0], "an assignment to a part")
            return original(tensor, *args, **kwargs)

        return write

    def _look(self, tensor: Any, key: Any, operation: str) -> None:
        core: Core | None = self._memory.here()
        if core is None or _has_tensors(key):
            return
        import torch

        with self._memory.guarded(core, "expanded"):
            given = tensor._base.shape
            if not _spreads(given, tensor.shape):
                return  # another view lies between: which elements are one is not known
            layout = torch.empty(given, device="meta").expand(tensor.shape)[key]
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


def _spreads(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether ``expand`` makes the one shape of the other."""
    ends = zip(reversed(given), reversed(shape), strict=False)
    return len(given) <= len(shape) and all(one in (1, other) for one, other in ends)


def _has_tensors(key: Any) -> bool:
    """Whether a key picks by values: then what is written is no view."""
    return any(hasattr(one, "is_xla") for one in (key if isinstance(key, tuple) else (key,)))
