"""Find what makes PyTorch/XLA training slow, wrong or stuck.

Two roads lead to the same findings: ``xladoctor lint`` reads the code before the run,
``xladoctor profile`` watches the run itself. Both speak of one problem with one code.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from xladoctor.frames import RunTables
    from xladoctor.interactive import Run

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "cores_differ_on_purpose",
    "load_ipython_extension",
    "load_run",
    "profile",
    "step",
]


def step() -> None:
    """Say that one step of the training is over, for loops in which xladoctor does not see it.

    By itself ``xladoctor profile`` takes each step of an optimizer as one, and in a program without
    an optimizer each turn of the loop that ends its graphs. Call this at the end of each turn of a
    loop that steps several optimizers, or none. Once it was called, its calls on a core are the
    core's steps and nothing else is. Outside a profiled run it does nothing.
    """
    agent = sys.modules.get("_xladoctor.agent.boot")
    if agent is not None:
        agent.step()


def cores_differ_on_purpose(*what: object) -> None:
    """Say that the cores of this program are meant to hold different weights.

    ``xladoctor profile --simulate-cores`` compares the weights of all cores and reports when they
    part (XLA412). Call this on every core for what shall not be compared; outside of a profiled
    run it does nothing that can be noticed.

    Args:
        what: Modules (before or after they are moved to the device), parameters (after) or
            optimizers, for all that they update. Without any, nothing of this program is compared.
    """
    import os

    if not what:
        os.environ["XLADOCTOR_CORES_DIFFER"] = "1"
    for one in what:
        setattr(one, "_xladoctor_differs_on_purpose", True)  # noqa: B010  (any kind of object)


def profile(
    output: str | Path | None = None, *, force: bool = False
) -> AbstractContextManager[Run]:
    """Record what this process does on XLA devices: ``with xladoctor.profile() as run: ...``.

    Afterwards ``run.report()`` shows what was found. ``xladoctor profile`` sees more: all of a
    program, why its graphs are new, and simulated cores.

    Args:
        output: Run directory; by default a new one under ``.xladoctor/runs/``.
        force: Overwrite the run that ``output`` holds.
    """
    from xladoctor import interactive

    return interactive.profile(output, force=force)


def load_run(*paths: str | Path) -> RunTables:
    """Read a recorded run as tables: ``load_run(".xladoctor/runs/...").steps`` and others.

    Args:
        paths: A run directory; several are the cores of one run.

    Returns:
        ``steps``, ``compilations``, ``reads``, ``fallbacks``, ``cores``, ``metrics`` and
        ``findings`` as pandas data frames (extra ``[report]``); ``arrow(name)`` for Arrow tables.
    """
    from xladoctor import frames

    return frames.load_run(*paths)


def load_ipython_extension(ipython: Any) -> None:
    """What ``%load_ext xladoctor`` calls: gives the notebook ``%%xladoctor``."""
    from xladoctor import interactive

    interactive.load_magic(ipython)
