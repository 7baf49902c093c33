"""Where in the user's code a thread is, for messages about cores that wait."""

from __future__ import annotations

import os
import sys
import sysconfig

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
_LIBRARIES = tuple(
    {
        sysconfig.get_path(name) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if sysconfig.get_path(name)
    }
    | {_OURS + os.sep}
)


def user_place(thread: int) -> str:
    """The innermost line of the user's own code in a thread.

    Args:
        thread: Identity of the thread, as ``threading.get_ident`` gives it.

    Returns:
        " at train.py:40", or "" if there is none.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_LIBRARIES) and not name.startswith("<"):
            return f" at {name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
