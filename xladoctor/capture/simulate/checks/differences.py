"""Operations that give something else than PyTorch does, whatever the values.

``x.amax()`` and ``x.amin()`` without dimensions reduce nothing (torch_xla 2.9.0, seen by running;
``rules/tables/differences.toml`` has what is known, and what to write instead).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .memory import Memory, place_of, watch

if TYPE_CHECKING:
    from ..cores import Core

_REDUCTIONS = ("amax", "amin")


def install(memory: Memory) -> None:
    """Watch what differs.

    Args:
        memory: Of the cores.
    """
    import torch

    for name in _REDUCTIONS:
        for owner in (torch, torch.Tensor):
            watch(owner, name, memory, _Look(memory, name))


class _Look:
    """Tells of a reduction over no dimension of a tensor that has some."""

    def __init__(self, memory: Memory, name: str) -> None:
        self._memory = memory
        self._name = name

    def __call__(self, core: Core, tensor: Any, dim: Any = (), *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        given = kwargs.get("axis", dim)
        if getattr(tensor, "is_xla", False) and tensor.numel() > 1 and given in ((), []):
            self._memory.tell(core, "difference", place_of(core), operation=self._name)
