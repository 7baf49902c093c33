"""Gradients that never arrive: cut off by a collective or a checkpoint, or lost on the way.

Facts used (torch_xla 2.9.0, seen by running on two simulated cores):

* ``xm.all_reduce`` with ``scale``, ``groups`` or ``pin_layout=False`` gives a leaf that requires
  grad: ``backward()`` succeeds and stops there. Plain ``all_reduce``, ``all_gather``,
  ``reduce_scatter`` and ``all_to_all`` hand back no gradient, with one warning at most. On one core
  the result is a clone, and all is well.
* ``torch_xla.utils.checkpoint`` is always reentrant (``use_reentrant=False`` raises): if none of
  its inputs requires grad, what stands in the block gets no gradient.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ...agent import optimizers
from ...agent.points import COLLECTIVE, Call
from ..owners import names_of
from .memory import Memory, Mind, place_of, watch
from .modules import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..cores import Core
    from ..places import Place
    from .modules import Ran


@dataclasses.dataclass(slots=True)
class Crossing:
    """One tensor that a collective took and that requires grad.

    Attributes:
        name: The collective.
        place: The user's line.
        arrived: Whether a gradient came to the result.
        passed: Whether the tensor that was given to it got a gradient, from here or elsewhere.
    """

    name: str
    place: Place | None
    arrived: bool = False
    passed: bool = False


@dataclasses.dataclass(slots=True)
class Seen:
    """What a core knows of its gradients.

    Attributes:
        crossings: Since the last optimizer step.
        missing: Optimizer (its id) to the identities that had no gradient at any step so far.
        steps: Optimizer (its id) to its steps.
        checkpoint: Where a checkpointed block was cut off.
        held: The parameters of all optimizers that have stepped (their ids).
        idle: Optimizer (its id) to its steps so far at which nothing that it holds had a gradient.
    """

    crossings: list[Crossing] = dataclasses.field(default_factory=list)
    missing: dict[int, set[int]] = dataclasses.field(default_factory=dict)
    steps: dict[int, int] = dataclasses.field(default_factory=dict)
    checkpoint: Place | None = None
    held: set[int] = dataclasses.field(default_factory=set)
    idle: dict[int, int] = dataclasses.field(default_factory=dict)


#: Crossings that are kept between two optimizer steps.
_MOST = 256


def install(memory: Memory, ran: Ran, *, several: bool) -> None:
    """Watch collectives (of several cores), checkpoints and optimizer steps.

    Args:
        memory: Of the cores.
        ran: The modules that take part; a parameter of another one is right to have no gradient.
        several: Whether there is more than one core.
    """
    if several:
        memory.running.around(COLLECTIVE, _Collectives(memory).around, "gradients")
    _watch_checkpoints(memory, ran)
    try:
        optimizers.before_step(_Steps(memory, ran).before)
    except ImportError:
        return  # an older torch


def _seen(mind: Mind) -> Seen:
    seen: Seen = mind.note("gradients", Seen)
    return seen


class _Collectives:
    """Follows what a collective was given, and what it gave, through the backward pass."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def around(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        import torch

        result = proceed()
        if not torch.is_grad_enabled():
            return result  # also inside of autograd functions, which bring their own backward
        given = next((one for one in (*call.args, *call.kwargs.values()) if _traced(one)), None)
        if given is None or not _traced(result) or result is given:
            return result
        seen = _seen(self._memory.of(core))
        if len(seen.crossings) < _MOST:
            crossing = Crossing(call.what, place_of(core))
            seen.crossings.append(crossing)
            given.register_hook(lambda gradient: _mark(crossing, "passed", gradient))
            result.register_hook(lambda gradient: _mark(crossing, "arrived", gradient))
        return result


def _traced(value: Any) -> bool:
    return getattr(value, "is_xla", False) is True and value.requires_grad


def _mark(crossing: Crossing, what: str, gradient: Any) -> None:
    if gradient is not None:
        setattr(crossing, what, True)


def _watch_checkpoints(memory: Memory, ran: Ran) -> None:
    import importlib

    import torch

    try:
        module = importlib.import_module("torch_xla.utils.checkpoint")
    except ImportError:
        return

    def look(core: Core, function: Any, *args: Any, **kwargs: Any) -> None:
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
        if torch.is_grad_enabled() and not any(one.requires_grad for one in given):
            seen = _seen(memory.of(core))
            seen.checkpoint = seen.checkpoint or place_of(core)
            # The block itself runs without gradients, and so is not noted as it runs.
            ran.note(core, _modules_of(function))

    watch(module, "checkpoint", memory, look)


def _modules_of(function: Any) -> Iterator[Any]:
    """The modules that a checkpointed function is, belongs to or closes over."""
    from torch import nn

    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    for one in (function, getattr(function, "__self__", None), *cells):
        if isinstance(one, nn.Module):
            yield from one.modules()


class _Steps:
    """Looks at what the backward pass has left when an optimizer steps."""

    def __init__(self, memory: Memory, ran: Ran) -> None:
        self._memory = memory
        self._ran = ran

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        core = self._memory.running.here
        if core is None:
            return
        with self._memory.guarded(core, "gradients"):
            seen = _seen(self._memory.of(core))
            self._crossings(core, seen)
            self._missing(core, seen, optimizer)
            self._stale(core, seen, optimizer)
            self._ran.over(core)

    def _crossings(self, core: Core, seen: Seen) -> None:
        for crossing in seen.crossings:
            if crossing.arrived and not crossing.passed:
                self._memory.tell(core, "gradient-cut", crossing.place, operation=crossing.name)
        seen.crossings.clear()

    def _stale(self, core: Core, seen: Seen, optimizer: Any) -> None:
        """An optimizer of weights without gradients, beside weights with gradients without one."""
        steps = seen.steps[id(optimizer)]
        if steps > STEPS:
            return
        own = [one for group in optimizer.param_groups for one in group["params"]]
        seen.held.update(map(id, own))
        if any(one.grad is not None for one in own):
            return
        seen.idle[id(optimizer)] = seen.idle.get(id(optimizer), 0) + 1
        if seen.idle[id(optimizer)] < STEPS:
            return
        loose = [
            one
            for module in self._ran.modules(core)
            for one in module._parameters.values()
            if one is not None and one.grad is not None and id(one) not in seen.held
        ]
        if own and loose:
            names = names_of(loose[:3])
            self._memory.tell(
                core, "stale-optimizer", place_of(core), parameters=names, count=len(loose)
            )

    def _missing(self, core: Core, seen: Seen, optimizer: Any) -> None:
        """Which parameters had no gradient at any of the first steps although others had."""
        steps = seen.steps[id(optimizer)] = seen.steps.get(id(optimizer), 0) + 1
        if steps > STEPS:
            return
        trained = [
            parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.requires_grad
        ]
        used = {
            id(one)
            for module in self._ran.modules(core)
            for one in module._parameters.values()
            if one is not None
        }
        without = {id(one) for one in trained if one.grad is None and id(one) in used}
        if steps > 1:
            without &= seen.missing[id(optimizer)]
        seen.missing[id(optimizer)] = without
        if steps < STEPS or not without or len(without) == len(trained):
            return
        missing = [one for one in trained if id(one) in without]
        self._memory.tell(
            core,
            "no-gradient",
            seen.checkpoint or place_of(core),
            parameters=names_of(missing[:3]),
            count=len(missing),
            checkpoint=seen.checkpoint is not None,
        )
