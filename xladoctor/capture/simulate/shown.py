"""How the failure of cores is printed: one traceback, the user's lines first, and whose fault."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from ..agent import faults
from .belongings import standard
from .places import OURS, from_the_user, is_library
from .wording import names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

#: Set on an exception whose traceback has been printed; it stays on it from process to process.
_MARK = "_xladoctor_shown"
#: Every call of a module passes through three frames of this file.
_MODULE_CALLS = os.path.join("torch", "nn", "modules", "module.py")  # noqa: PTH118


def show(core: int, size: int, error: BaseException) -> None:
    """Print the failing core's own traceback, before whatever its end makes others print."""
    whole = traceback.TracebackException(type(error), error, from_the_user(error))
    _shorten(whole)
    text = "".join(whole.format())
    told = faults.told(error)
    text += f"xladoctor: {told[1]}\n" if told is not None else ""
    stderr = standard("stderr")  # the core may have put another in its place
    stderr.write(f"xladoctor: core {core} of {size} failed:\n{text}")
    stderr.flush()
    _mark(error)


def show_others(shown: BaseException, others: Sequence[tuple[int, BaseException]]) -> None:
    """Say in a sentence what the cores raised whose tracebacks are not printed.

    Args:
        shown: What was printed.
        others: The other cores that raised, and what.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for core, error in sorted(others, key=lambda one: one[0]):
        groups.setdefault(_said(error), []).append(core)
        _mark(error)  # torch_xla hands on the error of the lowest core
    for (kind, place), cores in groups.items():
        same = (kind, place) == _said(shown)
        what = "the same at the same line" if same else f"{kind}{place}"
        sys.stderr.write(f"xladoctor: {names(cores)} raised {what}\n")


def say_once_in_the_parent() -> None:
    """Let the parent of the cores name an error whose traceback a core has printed, and no more.

    Python would print the core's traceback again, with all the frames of its launchers.
    """
    original = sys.excepthook
    told = getattr(original, "tell", None)  # the agent's: see agent.process.see_uncaught
    if getattr(original, "before", original) is not sys.__excepthook__:
        return  # the program has its own

    @functools.wraps(original)
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        if not getattr(error, _MARK, False):
            return original(kind, error, trace)
        if told is not None:
            with contextlib.suppress(Exception):
                told(error)
        sys.stderr.write("".join(traceback.format_exception_only(kind, error)))
        return None

    sys.excepthook = hook


def _shorten(whole: traceback.TracebackException | None) -> None:
    """Leave out frames that only hand a call on; what is raised there stays."""
    while whole is not None:
        last = len(whole.stack) - 1
        kept = [
            entry
            for at, entry in enumerate(whole.stack)
            if not entry.filename.startswith(OURS)
            and (at == last or not entry.filename.endswith(_MODULE_CALLS))
        ]
        if kept:
            whole.stack = traceback.StackSummary.from_list(kept)
        whole = whole.__cause__ or whole.__context__


def _mark(error: BaseException) -> None:
    with contextlib.suppress(Exception):  # one that takes no attributes is printed again
        setattr(error, _MARK, True)


def _said(error: BaseException) -> tuple[str, str]:
    """Type of an error, and the user's innermost line in words."""
    place = ""
    for frame, row in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not is_library(file):
            place = f" at {file}:{row}"
    return type(error).__name__, place
