"""Buffers that differ from core to core although the weights agree: statistics of BatchNorm.

Nothing reduces buffers: each core's running mean and variance are those of its own share, so that
an evaluation gives another result on each core and the checkpoint holds those of one.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from ...agent import xla
from ...agent.points import LAUNCH, Call
from .memory import Memory, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cores import Core, CoreGroup
    from .modules import Ran

#: After which optimizer step the buffers are compared.
AFTER_STEP = 3
#: Names of buffers that training writes (BatchNorm and what is built like it).
_WRITTEN = ("running_mean", "running_var")
#: Kind of the module, name of the buffer, its values on the host.
_Buffer = tuple[str, str, Any]
#: Share of the largest value that is no difference.
TOLERANCE = 1e-5


def install(memory: Memory, ran: Ran) -> None:
    """Compare after a launch.

    Args:
        memory: Of the cores.
        ran: The modules whose buffers are looked at.
    """
    memory.running.around(LAUNCH, _Buffers(memory, ran).launch, "buffers")


class _Buffers:
    """Compares the cores' buffers once."""

    def __init__(self, memory: Memory, ran: Ran) -> None:
        self._memory = memory
        self._ran = ran
        self._lock = threading.Lock()
        self._brought: weakref.WeakKeyDictionary[CoreGroup, dict[int, list[_Buffer]]] = (
            weakref.WeakKeyDictionary()
        )
        self._wait_device = xla.binding("_xla_wait_device_ops")

    def launch(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around LAUNCH: what was pending has been launched now."""
        result = proceed()
        mind = self._memory.of(core)
        if (
            mind.steps >= AFTER_STEP
            and call.what == "_xla_step_marker"
            and "compared" not in mind.notes
            and core.group.failure is None
            and core.group.all_have_launched(core)
        ):
            mind.notes["compared"] = True
            began = time.perf_counter()
            with self._memory.guarded(core, "buffers"):
                self._bring(core)
            waited = call.facts.get("waited", 0.0) + time.perf_counter() - began
            call.facts["waited"] = waited
        return result

    def _bring(self, core: Core) -> None:
        self._wait_device([core.device])
        mine: list[_Buffer] = []
        for module in self._ran.modules(core):
            for name in _WRITTEN:
                buffer = module._buffers.get(name)
                values = None if buffer is None or not buffer.is_xla else values_of(buffer)
                if values is not None:
                    mine.append((type(module).__name__, name, values.clone()))
        with self._lock:
            brought = self._brought.setdefault(core.group, {})
            brought[core.number] = mine
            if len(brought) < len(core.group.numbers):
                return
        self._compare(core, brought)

    def _compare(self, core: Core, brought: dict[int, list[_Buffer]]) -> None:
        reference = brought[min(brought)]
        if any(len(theirs) != len(reference) for theirs in brought.values()):
            return  # different models
        worst, where, differing = 0.0, "", 0
        for at, (kind, name, values) in enumerate(reference):
            distance = max(
                float((theirs[at][2].double() - values.double()).abs().max())
                if theirs[at][2].shape == values.shape
                else 0.0
                for theirs in brought.values()
            )
            if distance > TOLERANCE * max(float(values.abs().max()), 1e-12):
                differing += 1
                if distance > worst:
                    worst, where = distance, f"{name} of a {kind}"
        if differing:
            self._memory.tell(
                core, "buffers", None, buffer=where, difference=worst, count=differing
            )
