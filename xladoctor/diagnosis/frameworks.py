"""What is done inside a framework for the user's line: which setting changes it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.diagnosis.words import is_installed, package_of

if TYPE_CHECKING:
    from xladoctor.readings.tables import Frame


def setting(frames: tuple[Frame, ...]) -> str | None:
    """What to change at the user's line so that a framework reads less (``frameworks.toml``).

    Args:
        frames: Those of the read, innermost first.

    Returns:
        None for a read of the user's own, or one of which no setting is known.
    """
    inside = list(itertools.takewhile(lambda frame: is_installed(frame[0]), frames))
    passed = {(package_of(file), function) for file, _, function in inside}
    rows = catalogue.table("frameworks")["read"]
    return next((str(r["advice"]) for r in rows if (r["package"], r["function"]) in passed), None)
