"""Random numbers of the device that are the same on all cores.

Every process of torch_xla starts its device generator with the constant 101, and
``torch_xla.manual_seed(s)`` with one ``s`` keeps it so (torch_xla 2.9.0, seen by running): dropout
masks, noise and time steps are then equal on all cores. Equal weights at the start are wanted, so
only what is drawn after the first optimizer step counts, and only while gradients are on.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any

from ...agent import xla
from .memory import Memory, place_of, watch

if TYPE_CHECKING:
    from ..cores import Core

#: Functions that draw on the device of their first tensor, or on ``device=``.
_OF_FUNCTIONAL = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
    "scaled_dot_product_attention",
)
_OF_TORCH = (
    "rand",
    "randn",
    "randint",
    "randperm",
    "rand_like",
    "randn_like",
    "randint_like",
    "bernoulli",
    "multinomial",
    "normal",
)
_OF_TENSOR = ("bernoulli_", "normal_", "uniform_", "random_", "exponential_")
#: Steps of which each line's seeds are told; equal in two of them is no chance.
STEPS = 2
#: Lines that are remembered.
MOST_LINES = 20
#: When no line was new for so many steps, only every so many steps are looked at: finding the line
#: of a draw takes longer than the draw.
SETTLED, EVERY = 3, 16


@dataclasses.dataclass(slots=True)
class _Lines:
    """What a core knows of its draws.

    Attributes:
        seeds: Line to the seeds that it drew with, by step.
        new_at: The last step in which something was noted.
        step, count, before: The step of the last draw, the draws in it, and those of the step
            before: one more than there were may be of a line that is new.
    """

    seeds: dict[Any, dict[int, int]] = dataclasses.field(default_factory=dict)
    new_at: int = 0
    step: int = 0
    count: int = 0
    before: int = 0

    def due(self, step: int) -> bool:
        """Whether to look at this draw; the same on all cores that draw at the same lines."""
        if step != self.step:
            self.before = self.count if step == self.step + 1 else 0
            self.step, self.count = step, 0
        self.count += 1
        return step - self.new_at <= SETTLED or step % EVERY == 0 or self.count > self.before


def install(memory: Memory) -> None:
    """Watch what draws."""
    import torch

    if xla.binding("_xla_get_rng_seed") is None:
        return
    for owner, names in (
        (torch.nn.functional, _OF_FUNCTIONAL),
        (torch, _OF_TORCH),
        (torch.Tensor, _OF_TENSOR),
    ):
        for name in names:
            watch(owner, name, memory, _Look(memory, name))


class _Look:
    """Notes the seed that a line draws with."""

    def __init__(self, memory: Memory, name: str) -> None:
        self._memory = memory
        self._name = name

    def __call__(self, core: Core, *args: Any, **kwargs: Any) -> None:
        import torch

        mind = self._memory.of(core)
        if not mind.steps or not torch.is_grad_enabled():
            return
        if threading.get_ident() != core.thread:
            return  # a checkpointed block that autograd runs once more
        lines: _Lines = mind.note("draws", _Lines)
        if not lines.due(mind.steps) or not _draws(self._name, args, kwargs):
            return
        place = place_of(core)
        if place not in lines.seeds and len(lines.seeds) >= MOST_LINES:
            return
        seeds = lines.seeds.setdefault(place, {})  # of the first steps that draw here
        if mind.steps in seeds or len(seeds) >= STEPS:
            return
        lines.new_at = mind.steps
        seeds[mind.steps] = xla.binding("_xla_get_rng_seed")(f"xla:{core.local}")
        if len(seeds) == STEPS:
            told = [f"{step}:{seed}" for step, seed in seeds.items()]
            self._memory.tell(core, "draws", place, operation=self._name, seeds=told)


def _draws(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the call draws on an XLA device."""
    import torch

    if name == "scaled_dot_product_attention":
        if not (args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)):
            return False
    elif name in _OF_FUNCTIONAL:
        p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        training = args[2] if len(args) > 2 else kwargs.get("training", True)
        if not training or not p:
            return False
    device = kwargs.get("device")
    if device is not None:
        return bool(torch.device(device).type == "xla")
    tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
    if tensors:
        return any(one.is_xla for one in tensors)
    return bool(torch.get_default_device().type == "xla")
