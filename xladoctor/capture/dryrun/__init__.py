"""Steps that are traced and not executed; runs inside the user's process.

torch_xla is lazy: until a graph is launched, a tensor is a shape, a type and the operations that
would make it. :func:`install` puts itself in the place of everything that would execute: a launch
hands its graph over and leaves placeholders that hold no memory; a read of what was never computed
gets a stand-in. So a step of real size costs what tracing it costs, and no more memory than
parameters and inputs. With several cores core 0 runs for all of them: nothing is exchanged, so
nobody has to be waited for.

``lazy``      torch_xla's lazy tensors: what is pending, its graph, placeholders
``standins``  what a read or an upload gets
``launches``  what stands in the place of a launch
``exchange``  what cores would exchange
``steps``     which graphs make up a step, and when enough has been seen
``guards``    no saving of values that mean nothing; what kind of device a program is told of
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..agent.points import Points
    from ..agent.process import Process
    from ..agent.writer import Writer

__all__ = ["DRY_RUN", "environment", "install"]

#: Set by the launcher in a program whose steps are only traced.
DRY_RUN = "XLADOCTOR_DRY_RUN"


def environment(cores: int) -> dict[str, str]:
    """The variables to set for a program whose steps are only traced on that many cores."""
    return {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(cores), DRY_RUN: "1"}


def install(points: Points, writer: Writer, process: Process, cores: int) -> list[str]:
    """Stand in the place of the device; call it once, after ``agent.wrapping.install``.

    Args:
        points: The process's points.
        writer: Takes the graphs.
        process: Takes the rows.
        cores: How many cores the program is to see.

    Returns:
        The names that this torch_xla lacks and that are needed; if any, nothing was installed.
    """
    from ..agent import xla
    from ..agent.points import CORE, SIMULATE
    from ..simulate import frameworks
    from . import exchange, guards, lazy
    from .launches import Launches
    from .standins import StandIns
    from .steps import Steps

    missing = [name for name in lazy.NEEDED if xla.binding(name) is None]
    if missing:
        return missing
    steps = Steps(writer, process)
    Launches(points, steps, process.note).install()
    StandIns(points, steps, process.note).install()
    guards.install(process.note)
    locate = xla.binding("_set_ir_debug")
    if locate is not None:
        locate(True)  # the graphs know the lines that made them

    def core_for_all(call: Any, proceed: Callable[[], Any]) -> Any:
        """Around CORE: core 0 runs, the others would build the same graphs."""
        return proceed() if call.core in (None, 0) else None

    points.around(CORE, SIMULATE, core_for_all, "dryrun")
    exchange.install(points, steps)
    frameworks.install(cores)
    guards.answer_as_a_tpu()
    return []
