"""What is compared of a program: parameters, buffers and optimizer state, and their names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..agent.alive import instances
from ..simulate.agreement import SILENT
from ..simulate.owners import MARK
from . import norms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .state import Core


def parameters(optimizer: Any) -> list[Any]:
    """What an optimizer trains, in its order; shards of a larger tensor cannot be compared."""
    return [
        parameter
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad and not getattr(parameter, "_is_sharded", False)
    ]


def compared(core: Core, optimizer: Any) -> list[Any]:
    """The same without those that differ from core to core on purpose."""
    known = core.notes.setdefault("differing", {})
    every = parameters(optimizer)
    if id(optimizer) not in known:
        known[id(optimizer)] = _differing(optimizer, every)
    left_out = known[id(optimizer)]
    return [one for one in every if id(one) not in left_out]


def _differing(optimizer: Any, every: Sequence[Any]) -> set[int]:
    """Those of an optimizer's parameters that the program, or ZeRO, has marked (their ids)."""
    import torch

    whole = (
        os.environ.get(SILENT, "0") not in ("", "0")
        or getattr(optimizer, MARK, False)
        # ZeRO: the inner optimizer holds a share of each parameter.
        or any(
            getattr(one, "base_optimizer", None) is optimizer
            for one in instances(torch.optim.Optimizer)
        )
    )
    if whole:
        left_out = set(map(id, every))
    else:
        left_out = {id(one) for one in every if getattr(one, MARK, False)}
        for module in instances(torch.nn.Module):
            if module.__dict__.get(MARK):
                left_out |= set(map(id, module.parameters()))
        left_out &= set(map(id, every))
    if left_out:
        norms.used.add("differing on purpose")
    return left_out


def buffers(core: Core) -> dict[str, Any]:
    """The buffers of the outermost modules that have run."""
    found: dict[str, Any] = {}
    for module in core.notes.get("roots", {}).values():
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point():
                found.setdefault(name, buffer)
    return found


def states(optimizer: Any, parameters: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The tensors that an optimizer keeps for each of some parameters."""
    import torch

    found = {}
    for parameter, name in zip(parameters, names, strict=True):
        for key, value in sorted(optimizer.state.get(parameter, {}).items()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                found[f"{key} of {name}"] = value
    return found


def names() -> dict[int, str]:
    """The parameters of all modules by their names in the outermost one."""
    import torch

    found: dict[int, str] = {}
    for one in instances(torch.nn.Module):
        try:
            for name, parameter in one.named_parameters():
                if len(name) > len(found.get(id(parameter), "")):
                    found[id(parameter)] = name
        except Exception:  # noqa: PERF203, S112  (half-made or odd objects of the program)
            continue
    return found
