"""Labels and indices out of range.

XLA clamps them or drops what they point at; torch on a CPU raises (torch_xla 2.9.0, seen by
running: ``cross_entropy`` with labels -1 and 7 of 5 classes gives 0.92, ``embedding(99)`` of 10
rows the last row). Only values that are on the device already are looked at: what has still to be
computed would cut the program's graph.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .memory import Memory, place_of, values_of, watch

if TYPE_CHECKING:
    from ..cores import Core

#: The first calls are always looked at, later ones while that costs less than this share of time.
ALWAYS, SHARE = 4, 0.01


def install(memory: Memory, *, always: bool = False) -> None:
    """Watch what takes indices.

    Args:
        memory: Of the cores.
        always: Whether to look at every call, at whatever cost, also of ``gather`` and its kin.
    """
    import torch
    from torch.nn import functional

    look = _Look(memory, always=always)
    if always:
        for name in ("gather", "index_select", "scatter", "scatter_add", "index_add"):
            for owner in (torch, torch.Tensor):
                watch(owner, name, memory, look.along)
    watch(functional, "embedding", memory, look.embedding)
    watch(functional, "cross_entropy", memory, look.loss)
    watch(functional, "nll_loss", memory, look.loss)


class _Look:
    """Compares indices with the size that they index."""

    def __init__(self, memory: Memory, *, always: bool) -> None:
        self._memory = memory
        self._always = always

    def embedding(self, core: Core, input: Any, weight: Any, *args: Any, **kwargs: Any) -> None:  # noqa: A002, ARG002
        """``F.embedding``: the rows of the table."""
        self._check(core, "embedding", input, int(weight.shape[0]), None)

    def loss(
        self,
        core: Core,
        input: Any,  # noqa: A002
        target: Any,
        weight: Any = None,  # noqa: ARG002
        size_average: Any = None,  # noqa: ARG002
        ignore_index: int = -100,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """``F.cross_entropy`` and ``F.nll_loss``: the classes."""
        if target.is_floating_point():
            return  # probabilities
        classes = int(input.shape[1] if input.dim() > 1 else input.shape[0])
        self._check(core, "labels", target, classes, ignore_index)

    def along(
        self,
        core: Core,
        input: Any,  # noqa: A002
        dim: Any,
        index: Any,
        *args: Any,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """``x.gather(dim, index)`` and its kin: the size of that dimension."""
        if isinstance(dim, int) and input.dim():
            self._check(core, "embedding", index, int(input.shape[dim]), None)

    def _check(self, core: Core, what: str, indices: Any, size: int, ignored: int | None) -> None:
        if not indices.is_xla:
            return
        spent = self._memory.of(core).note("indices", lambda: [0, 0.0, time.monotonic()])
        calls, seconds, began = spent
        now = time.monotonic()
        if not self._always and calls >= ALWAYS and seconds > SHARE * (now - began):
            return
        spent[0] += 1
        try:
            values = values_of(indices)
            if values is None or not values.numel():
                return
            if ignored is not None:
                values = values[values != ignored]
                if not values.numel():
                    return
            least, most = int(values.min()), int(values.max())
            if least < 0 or most >= size:
                self._memory.tell(core, what, place_of(core), least=least, most=most, size=size)
        finally:
            spent[1] += time.monotonic() - now
