"""Which module of the program a parameter belongs to; slow, for messages only."""

from __future__ import annotations

import gc
from typing import Any

from ..agent.alive import instances

#: Attribute of modules, parameters and optimizers that are marked as different on purpose, see
#: ``xladoctor.cores_differ_on_purpose``.
MARK = "_xladoctor_differs_on_purpose"


def name_of(parameter: Any) -> str:
    """The parameter's name in its outermost module, for people.

    Returns:
        "parameter 'fc.weight'", or "a parameter of shape [3, 4]".
    """
    found = [name for _, name in _owners(parameter)]
    if found:
        return f"parameter '{max(found, key=len)}'"
    return f"parameter of shape {list(parameter.shape)}"


def differs_on_purpose(optimizer: Any, parameter: Any) -> bool:
    """Whether the program has said so, or a library is known to give each core another share."""
    import torch

    if getattr(parameter, MARK, False) or getattr(optimizer, MARK, False):
        return True
    for module, name in _owners(parameter):
        if getattr(module, MARK, False):
            return True
        for part in name.split(".")[:-1]:
            module = getattr(module, part, None)
            if getattr(module, MARK, False):
                return True
    # ZeRO: the inner optimizer holds a share of each parameter.
    return any(
        isinstance(one, torch.optim.Optimizer) and getattr(one, "base_optimizer", None) is optimizer
        for one in gc.get_referrers(optimizer.param_groups) + _holders(optimizer)
    )


def _holders(optimizer: Any) -> list[Any]:
    """Objects whose attribute the optimizer is."""
    found = []
    for referrer in gc.get_referrers(optimizer):
        found.append(referrer)
        if isinstance(referrer, dict):
            found += [one for one in gc.get_referrers(referrer) if not isinstance(one, dict)]
    return found


def _owners(parameter: Any) -> list[tuple[Any, str]]:
    """All modules that have the parameter, with its name in them."""
    import torch

    found = []
    for one in instances(torch.nn.Module):
        try:
            found += [(one, name) for name, own in one.named_parameters() if own is parameter]
        except Exception:  # noqa: PERF203, S112  (half-made or odd objects of the program)
            continue
    return found
