"""Where in the user's code a thread is, for messages about cores that wait."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import sysconfig
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

#: File, row and function.
Place = tuple[str, int, str]

#: The folder of this room.
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120


def _folder_of(name: str) -> str | None:
    """Where a package lies, with all that is installed beside it.

    That may be elsewhere than Python says: in the user's own site-packages, or on PYTHONPATH.
    """
    file: str | None = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return None
    package = os.path.dirname(os.path.abspath(file))  # noqa: PTH100, PTH120
    beside = os.path.dirname(package)  # noqa: PTH120
    return beside if beside.endswith(("site-packages", "dist-packages")) else package


_LIBRARIES = tuple(
    folder + os.sep
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(_folder_of(name) for name in ("torch", "torch_xla")),
        OURS,
    }
    if folder
)
#: Installed packages also stand where sysconfig does not say: ``pip install --user``, PYTHONPATH.
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


@functools.lru_cache(maxsize=4096)  # asked of every frame of every draw, read and collective
def is_library(path: str) -> bool:
    """Whether a file belongs to Python, to an installed package or to us."""
    return path.startswith(_LIBRARIES) or any(part in path for part in _INSTALLED)


def from_the_user(error: BaseException) -> TracebackType | None:
    """The traceback of an error from the first line of the user's own code on.

    What called it is torch_xla and we; all of it if none is the user's.
    """
    trace = error.__traceback__
    while trace is not None and is_library(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace or error.__traceback__


def _users(thread: int) -> Iterator[FrameType]:
    # A table of all threads is made only to look into another one.
    here = thread == threading.get_ident()
    frame: FrameType | None = sys._getframe(1) if here else sys._current_frames().get(thread)
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_library(name) and not name.startswith("<"):
            yield frame
        frame = frame.f_back


def user_frame(thread: int) -> Place | None:
    """The innermost line of the user's own code in a thread.

    Args:
        thread: Identity of the thread, as ``threading.get_ident`` gives it.
    """
    frame = next(_users(thread), None)
    if frame is None:
        return None
    return frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name


def user_frames(thread: int, most: int) -> list[FrameType]:
    """The innermost frames of the user's own code in a thread."""
    return list(itertools.islice(_users(thread), most))


def user_place(thread: int) -> str:
    """The same as words.

    Returns:
        " at train.py:40", or "" if there is none.
    """
    return at_place(user_frame(thread))


def at_place(place: Place | None) -> str:
    """A place as words; "" if there is none."""
    return "" if place is None else f" at {place[0]}:{place[1]}"


def is_users(path: str) -> bool:
    """Whether a file is the user's own."""
    return not path.startswith((*_LIBRARIES, "<"))


def place_named(file: str, row: int) -> Place | None:
    """The place of which torch_xla knows the last part of the file's name only.

    Args:
        file: "train.py".
        row: The line in it.

    Returns:
        The place in the one module of the user that has that name; None if it is not the user's.
    """
    paths = set()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and os.path.basename(path) == file:  # noqa: PTH119
            paths.add(os.path.abspath(path))  # noqa: PTH100
    if len(paths) != 1:
        return None
    path = paths.pop()
    return None if is_library(path) else (path, row, "")
