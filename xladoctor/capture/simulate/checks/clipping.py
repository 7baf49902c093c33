"""The norms by which the cores clip, compared (``--check``).

Gradients that are clipped before they are reduced are clipped by the norm of each core's own. The
norm is a result of the graph then, which it would not be otherwise: so this is not looked at unless
it is asked for.
"""

from __future__ import annotations

import functools
import math
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from ...agent import xla
from ...agent.points import LAUNCH, Call
from .memory import Memory, place_of, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cores import Core, CoreGroup
    from ..places import Place

#: Clips of a core that are compared.
MOST = 8
#: Share by which norms may differ: the cores add up the same numbers in the same order.
TOLERANCE = 1e-5


def install(memory: Memory) -> None:
    """Watch ``clip_grad_norm_``.

    Args:
        memory: Of the cores.
    """
    from torch import nn

    clipping = _Clipping(memory)
    nn.utils.clip_grad_norm_ = clipping.watching(nn.utils.clip_grad_norm_)
    memory.running.around(LAUNCH, clipping.launch, "clipping")


class _Clipping:
    """Compares what each core's clips have returned."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._brought: weakref.WeakKeyDictionary[CoreGroup, dict[int, dict[int, float]]] = (
            weakref.WeakKeyDictionary()
        )
        self._wait_device = xla.binding("_xla_wait_device_ops")

    def watching(self, original: Any) -> Any:
        """In the place of ``clip_grad_norm_``: keeps the norm until it is computed."""

        @functools.wraps(original)
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            norm = original(parameters, *args, **kwargs)
            core = self._memory.here()
            if core is not None and getattr(norm, "is_xla", False):
                mind = self._memory.of(core)
                count: list[int] = mind.note("clips", lambda: [0])
                if count[0] < MOST:
                    kept: list[tuple[int, Place | None, Any, int]] = mind.note("norms", list)
                    kept.append((count[0], place_of(core), norm.detach(), mind.steps + 1))
                    count[0] += 1
            return norm

        return clip

    def launch(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around LAUNCH: what was pending has been launched now."""
        result = proceed()
        mind = self._memory.of(core)
        if (
            mind.notes.get("norms")
            and call.what == "_xla_step_marker"
            and core.group.failure is None
            and core.group.all_have_launched(core)
        ):
            began = time.perf_counter()
            with self._memory.guarded(core, "clipping"):
                self._wait_device([f"CPU:{core.number}"])
                for number, place, norm, step in mind.notes.pop("norms"):
                    values = values_of(norm)
                    if values is not None:
                        self._compare(core, number, place, float(values), step)
            call.facts["waited"] = call.facts.get("waited", 0.0) + time.perf_counter() - began
        return result

    def _compare(
        self, core: Core, number: int, place: Place | None, norm: float, step: int
    ) -> None:
        with self._lock:
            brought = self._brought.setdefault(core.group, {}).setdefault(number, {})
            brought[core.number] = norm
            if len(brought) < core.group.size:
                return
            norms = [brought[one] for one in sorted(brought)]
        if all(map(math.isfinite, norms)) and max(norms) - min(norms) > TOLERANCE * max(norms):
            self._memory.tell(core, "norms", place, least=min(norms), most=max(norms), at=step)
