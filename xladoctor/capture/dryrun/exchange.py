"""What cores exchange, when core 0 stands for all: the others bring what it brings.

A collective is traced as it stands: it is part of the step. Only before the first backward pass one
of little data that is there (settings that a framework broadcasts before it begins) is computed,
because the program will read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..agent import xla
from ..agent.points import COLLECTIVE, RENDEZVOUS, SIMULATE, Call
from . import lazy
from .standins import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..agent.points import Points
    from .steps import Steps


def install(points: Points, steps: Steps) -> None:
    """Put it around the points.

    Args:
        points: The process's points.
        steps: Knows whether the program has begun to train.
    """

    def before_training(call: Call, proceed: Callable[[], Any]) -> Any:
        return proceed() if steps.training else collective(call, proceed)

    points.around(RENDEZVOUS, SIMULATE, rendezvous, "dryrun")
    points.around(COLLECTIVE, SIMULATE, before_training, "dryrun")


def rendezvous(call: Call, proceed: Callable[[], Any]) -> Any:  # noqa: ARG001
    """Around RENDEZVOUS."""
    import torch_xla

    torch_xla.sync()
    payload = call.args[0] if call.args else call.kwargs.get("payload", b"")
    return [payload] * _cores()


def collective(call: Call, proceed: Callable[[], Any]) -> Any:
    """Around COLLECTIVE, until the program trains."""
    values = _tensors(call.args[1:2] if call.what == "all_reduce" else call.args[:1])
    if call.what not in _COMPUTE or not values or call.kwargs.get("groups"):
        return proceed()
    if not lazy.known(values, SMALL):
        return proceed()
    return _COMPUTE[call.what](*call.args, **call.kwargs)


def _all_reduce(kind: str, inputs: Any, scale: float = 1.0, *rest: Any, **more: Any) -> Any:  # noqa: ARG001
    """As ``xm.all_reduce``: a tensor gives a tensor, a list is reduced in place."""
    cores = _cores()
    results = []
    for value in _tensors((inputs,)):
        # The least, the greatest, "and" and "or" of equal values are these values.
        reduced = value * cores if kind == "sum" else value**cores if kind == "mul" else value
        results.append(reduced * scale)
    if not isinstance(inputs, (list, tuple)):
        return results[0]
    for value, result in zip(inputs, results, strict=True):
        value.copy_(result)
    return inputs


def _all_gather(value: Any, dim: int = 0, *rest: Any, **more: Any) -> Any:  # noqa: ARG001
    import torch

    return torch.cat([value] * _cores(), dim)


def _broadcast(values: Any, *rest: Any, **more: Any) -> None:
    """What core 0 sends is what it has."""


_COMPUTE: dict[str, Callable[..., Any]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "collective_broadcast": _broadcast,
}


def _tensors(values: Any) -> list[Any]:
    """The tensors among arguments, also inside a list; none if one is not on a device."""
    found: list[Any] = []
    for value in values:
        found += value if isinstance(value, (list, tuple)) else [value]
    return found if all(getattr(one, "is_xla", False) for one in found) else []


def _cores() -> int:
    return max(1, int(xla.binding("_xla_get_replication_devices_count")()))
