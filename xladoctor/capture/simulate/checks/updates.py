"""Weights with few bits that no update moves.

An optimizer that writes to bfloat16 or float16 weights loses every update that is smaller than half
the distance to the next number, about 1/512 to 1/256 of a bfloat16 weight (torch 2.9.0 and
torch_xla 2.9.0, seen by running: SGD with lr=1e-3 and a gradient of 1 leaves a weight of 1 where it
is for ever). What is compared is a sample of the values before and after some steps.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...agent import optimizers, xla
from ...agent.points import LAUNCH, Call
from ..owners import names_of
from .memory import Memory, place_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cores import Core
    from ..places import Place

#: After which optimizer steps the values are looked at.
FROM, TO = 2, 5
#: Weights that are told of: this share of the sample has not moved.
SHARE = 0.75
#: Parameters, and values of each, in the sample.
MOST_PARAMETERS, MOST_VALUES = 64, 4096


def install(memory: Memory) -> None:
    """Compare after two launches; programs whose weights are float32 pay for nothing.

    Args:
        memory: Of the cores.
    """
    updates = _Updates(memory)
    try:
        optimizers.before_step(updates.before)
    except ImportError:
        return  # an older torch
    memory.running.around(LAUNCH, updates.launch, "updates")


class _Updates:
    """Compares a core's narrow weights with what they were."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._wait_device = xla.binding("_xla_wait_device_ops")

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        """Before a step: note which weights with few bits it is about to change."""
        core = self._memory.running.here
        if core is None:
            return
        mind = self._memory.of(core)
        if mind.steps != FROM - 1:
            return
        with self._memory.guarded(core, "updates"):
            noted: list[tuple[Any, Place | None]] = mind.note("narrow", list)
            place = place_of(core)
            noted += [
                (parameter, place)
                for parameter in _narrow(optimizer)[: MOST_PARAMETERS - len(noted)]
            ]

    def launch(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around LAUNCH: what was pending has been launched now."""
        result = proceed()
        mind = self._memory.of(core)
        noted = mind.notes.get("narrow")
        if (
            noted
            and call.what == "_xla_step_marker"
            and (mind.steps == FROM or mind.steps >= TO)
            and mind.notes.get("sampled") != mind.steps
            and core.group.failure is None
            and core.group.all_have_launched(core)
        ):
            mind.notes["sampled"] = mind.steps
            began = time.perf_counter()
            with self._memory.guarded(core, "updates"):
                self._look(core, noted)
            call.facts["waited"] = call.facts.get("waited", 0.0) + time.perf_counter() - began
        return result

    def _look(self, core: Core, noted: list[tuple[Any, Place | None]]) -> None:
        self._wait_device([f"CPU:{core.number}"])
        mind = self._memory.of(core)
        now = [_sample(one) for one, _ in noted]
        if mind.steps == FROM:
            mind.notes["values"] = now
            return
        before = mind.notes.pop("values", None)
        mind.notes.pop("narrow")
        if before is None:
            return
        still = every = 0
        worst: list[Any] = []
        for (one, _), old, new in zip(noted, before, now, strict=True):
            if old is None or new is None or old.shape != new.shape:
                continue
            same = int((old == new).sum())
            still, every = still + same, every + old.numel()
            if same >= SHARE * old.numel():
                worst.append(one)
        if every and still >= SHARE * every:
            self._memory.tell(
                core,
                "updates",
                noted[0][1],
                share=still / every,
                over=mind.steps - FROM,
                dtype=str(worst[0].dtype).removeprefix("torch.") if worst else "",
                parameters=names_of(worst[:3]),
                count=len(worst),
            )


def _narrow(optimizer: Any) -> list[Any]:
    """The trained weights of fewer than 32 bits that an optimizer writes to itself.

    Tables of embeddings are left out: rows that no batch names do not move.
    """
    import torch

    return [
        parameter
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
        and getattr(parameter, "is_xla", False)
        and parameter.dtype in (torch.bfloat16, torch.float16)
        and (parameter.dim() < 2 or parameter.shape[0] < 2048)
    ]


def _sample(parameter: Any) -> Any:
    """Some of a parameter's values, as a host tensor of its own; None if they are not there."""
    values = values_of(parameter)
    if values is None:
        return None
    flat = values.reshape(-1)
    return flat[:: max(1, flat.numel() // MOST_VALUES)].clone()
