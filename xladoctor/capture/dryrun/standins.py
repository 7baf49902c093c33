"""What a read gets whose value was never computed, and what an upload leaves on the device.

A read of little data that is really there (a mask of the batch, a length) is computed and true. All
others get a stand-in, which is said: 1 for numbers, because a loss of 0 divides by zero, and for
truth values what a healthy run would say ("is anything infinite?" no, "is all of it finite?" yes).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..agent import tensors, xla
from ..agent.points import FALLBACK, READ, SIMULATE, UPLOAD, Call
from . import lazy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..agent.points import Points
    from .steps import Steps

#: Bytes up to which data goes to the device, and up to which a read is really computed.
SMALL = 1 << 20

#: Last operations of a graph whose truth value is True in a healthy run ("all(isfinite(x))").
_HOLDS = ("aten::all", "aten::mul", "aten::logical_and", "aten::isfinite")
_ROOT = re.compile(r"= \S+ ([\w:]+)\(.*ROOT=0")


class StandIns:
    """Around the reads, fallbacks and uploads of one process.

    Args:
        points: The process's points.
        steps: Takes the graphs that a read would launch.
        note: Takes a sentence for the report.
    """

    def __init__(self, points: Points, steps: Steps, note: Callable[[str], None]) -> None:
        self._points = points
        self._steps = steps
        self._note = note
        self._said: set[str] = set()

    def install(self) -> None:
        """Put it around the points."""
        self._points.around(READ, SIMULATE, self.read, "dryrun")
        self._points.around(FALLBACK, SIMULATE, self.fallback, "dryrun")
        self._points.around(UPLOAD, SIMULATE, self.upload, "dryrun")

    def read(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around READ."""
        read = _read_tensors(call)
        if not read or not self._launch(read):
            return proceed()
        self._say(f"a read of a value that was never computed got a stand-in ({call.what})")
        return _result(call, read)

    def fallback(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around FALLBACK: the operation runs on the CPU, on stand-ins."""
        read = list(call.args[0])
        if not self._launch(read):
            return proceed()
        if call.what != tensors.MORE_INPUTS:
            self._say(f"{call.what} runs on the CPU, on values that were never computed")
        return [_stand_in(one) for one in read]

    def upload(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around UPLOAD: what is large leaves a placeholder."""
        self._steps.upload(call)
        if call.what == "to":
            placed_one = _placed(call)
            return proceed() if placed_one is None else placed_one
        if call.what != "tensors_from_aten":
            return proceed()
        values = list(call.args[0])
        if any(len(one) for one in call.args[2:3] if one) or not all(_large(v) for v in values):
            return proceed()
        placed = [lazy.placeholder(value.dtype, value.shape) for value in values]
        return proceed() if any(one is None for one in placed) else placed

    def _launch(self, read: list[Any]) -> bool:
        """A read ends a graph of its own and runs it; says whether it needs stand-ins."""
        waiting = lazy.waiting(read)
        if waiting:
            self._steps.graph(lazy.name_of(waiting), lambda: lazy.graph_of(waiting, donate=False))
        return not lazy.known(read, SMALL)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._note(text)


def _read_tensors(call: Call) -> list[Any]:
    """The tensors on the device that a read brings to the host."""
    if call.what in ("get_cpu_tensors", "aten::_local_scalar_dense"):
        return [one for one in call.args[0] if one.is_xla]
    at = {"copy_": 1, "setitem": 2}.get(call.what, 0)
    return [call.args[at]] if call.args[at].is_xla else []


def _result(call: Call, read: list[Any]) -> Any:
    """What the read gives the program."""
    if call.what in ("get_cpu_tensors", "aten::_local_scalar_dense"):
        return [_stand_in(one) for one in read]
    value = _stand_in(read[0])
    what = call.what
    if what == "repr":
        return f"tensor(never computed, size={tuple(read[0].shape)}, dtype={read[0].dtype})"
    if what == "copy_":
        return call.args[0].copy_(value)
    if what == "setitem":
        call.args[0][call.args[1]] = value
        return None
    if what == "to":
        return value.to(*call.args[1:], **call.kwargs)
    if what == "format":
        return format(value.item() if value.dim() == 0 else value, *call.args[1:])
    methods = {"item": "item", "tolist": "tolist", "cpu": "cpu"}
    return getattr(value, methods.get(what, f"__{what}__"))()


def _stand_in(tensor: Any) -> Any:
    """A tensor on the CPU of the same shape and type."""
    import torch

    if tensor.dtype != torch.bool:
        return torch.ones(tensor.shape, dtype=tensor.dtype)
    text = xla.binding("_get_xla_tensors_text")
    roots = _ROOT.findall(text([tensor])) if text is not None else []
    return torch.full(tensor.shape, bool(roots) and roots[-1] in _HOLDS)


def _large(value: Any) -> bool:
    return not value.is_xla and value.numel() * value.element_size() > SMALL


def _placed(call: Call) -> Any:
    """A placeholder for what ``Tensor.to`` was to upload; None if it must be done."""
    import torch

    tensor = call.args[0]
    if not _large(tensor) or (tensor.requires_grad and torch.is_grad_enabled()):
        return None
    words = {name: value for name, value in call.kwargs.items() if name != "copy"}
    _, dtype, _, _ = torch._C._nn._parse_to(*call.args[1:], **words)
    return lazy.placeholder(dtype or tensor.dtype, tensor.shape)
