"""One of the ways in which a program is run to be compared with itself; runs inside the program.

``xladoctor verify`` runs a program on N simulated cores, on one, and in plain PyTorch. What is
here makes the ways comparable and writes down what each step has made of the model:

``settings``  how this run takes part
``state``     the cores, and to which a thread belongs
``feeding``   the same batches: one core is given what N cores have read
``draws``     the same random numbers, whatever draws them
``norms``     batch normalization by shares
``host``      plain PyTorch in the place of XLA devices
``parts``     which parameters, buffers and state are compared, and their names
``steps``     sketches of losses, gradients, parameters, buffers and optimizer state; the end
``sketches``  a tensor as a few numbers
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING

from .settings import Settings, environment, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..agent.points import Points
    from ..simulate.running import Running

__all__ = ["Settings", "Verifying", "environment", "read"]


class Verifying:
    """This process's part in it.

    Args:
        settings: Of this way.
        close: Ends what else is being recorded, before the process is ended.
    """

    def __init__(self, settings: Settings, close: Callable[[], None]) -> None:
        from .draws import Draws
        from .steps import Steps

        self._settings = settings
        self._draws = Draws(settings)
        self._steps = Steps(settings, close)

    def begin(self, points: Points) -> None:
        """Put what is needed around the points, before the simulation does."""
        from . import state
        from .feeding import Feeding

        os.makedirs(self._settings.folder, exist_ok=True)
        random.seed(0)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(0)
        state.inherit()
        self._steps.install(points)
        Feeding(self._settings, self._steps.fail).install(points)
        self._draws.install()

    def complete(self, running: Running | None) -> None:
        """All else is in place.

        Args:
            running: The simulated cores; None in plain PyTorch.
        """
        import torch

        from . import host, norms

        self._steps.running = running
        self._draws.watch_seeds()
        on_host = self._settings.on_host
        if on_host or (self._settings.source is not None and self._settings.cores > 1):
            norms.install(self._settings.cores, on_host=on_host)
        torch.autograd.set_multithreading_enabled(False)
        if on_host:
            host.install()
            host.enter()
