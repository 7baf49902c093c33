"""A model whose weights are shared out over the cores (``XlaFullyShardedDataParallel``).

``torch.nn.utils.clip_grad_norm_`` sees one core's shard of each gradient, so every core clips by
another norm; ``xm.save`` with its default ``master_only=True`` writes the shard of the master alone
(documentation of torch_xla 2.9, docstrings of the class and of its ``clip_grad_norm_``).
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from .memory import Memory, place_of, watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..cores import Core

#: How the class names a shard in a state dict.
_SHARD = "_fsdp_shard"


def install(memory: Memory) -> None:
    """Watch clipping and saving."""
    from torch import nn

    def save(
        core: Core,
        data: Any,
        file_or_path: Any,  # noqa: ARG001
        master_only: bool = True,
        *args: Any,  # noqa: ARG001
        **kwargs: Any,  # noqa: ARG001
    ) -> None:
        names = [name for name in _keys(data) if _SHARD in name]
        if names and master_only:
            memory.tell(core, "sharded-save", place_of(core), count=len(names))

    _watch_clipping(nn.utils, memory)
    watch(importlib.import_module("torch_xla.core.xla_model"), "save", memory, save)


def _watch_clipping(owner: Any, memory: Memory) -> None:
    original = owner.clip_grad_norm_

    @functools.wraps(original)
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        core = memory.here()
        if core is not None and not hasattr(parameters, "grad"):
            parameters = list(parameters)  # a generator is empty once it has been looked at
            if any(getattr(one, "_is_sharded", False) for one in parameters):
                memory.tell(core, "sharded-clip", place_of(core))
        return original(parameters, *args, **kwargs)

    owner.clip_grad_norm_ = clip


def _keys(data: Any, depth: int = 3) -> Iterator[str]:
    if isinstance(data, dict) and depth:
        for key, value in data.items():
            if isinstance(key, str):
                yield key
            yield from _keys(value, depth - 1)
