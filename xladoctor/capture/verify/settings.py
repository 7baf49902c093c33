"""What the launcher tells a program that is run as one of several ways, through its environment."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Holds the settings as JSON; not set in a program that is not verified.
VARIABLE = "XLADOCTOR_VERIFY"

#: The way that is plain PyTorch.
ON_HOST = "cpu"


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How this run of the program takes part.

    Attributes:
        way: "cpu", "xla" or "xla-8".
        folder: Where this way leaves its record, absolute.
        steps: Optimizer steps after which the program is ended.
        source: The folder of the way whose batches and hyperparameters this one is given; None for
            the way that records them.
        cores: On how many cores that way has run; 1 if this is that way.
        rounding: Relative size of the changes that stand for rounding; 0 for none. The weights are
            changed by so much at the start and after each step: how far that carries them is what
            rounding may do.
        signs: Which of many sets of signs those changes have.
    """

    way: str
    folder: str
    steps: int
    source: str | None = None
    cores: int = 1
    rounding: float = 0.0
    signs: int = 0

    @property
    def on_host(self) -> bool:
        """Whether the program runs in plain PyTorch."""
        return self.way == ON_HOST


def environment(settings: Settings) -> dict[str, str]:
    """The variables to set for a run of the program."""
    # Sets of strings are walked through in the same order in each way.
    return {VARIABLE: json.dumps(dataclasses.asdict(settings)), "PYTHONHASHSEED": "0"}


def read(environ: Mapping[str, str] = os.environ) -> Settings | None:
    """The settings of this process; None if it is not verified."""
    text = environ.get(VARIABLE)
    return Settings(**json.loads(text)) if text else None
