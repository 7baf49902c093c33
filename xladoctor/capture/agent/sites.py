"""Program points: which line of the user's program an event belongs to, as small numbers."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

#: How many of the user's frames are kept, innermost first: enough to tell two loops that call one
#: helper apart, and not so many that a recursion makes every call a point of its own.
DEPTH = 8

#: Where in the user's code the cores were started, for those whose stack begins in a framework.
STARTED_AT = "XLADOCTOR_STARTED_AT"

#: What a frame is: of Python, torch, torch_xla or us; of another package; the user's own.
_LIBRARY, _PACKAGE, _OWN = 0, 1, 2

#: From here on new places are all called the same, so that no program can fill the disk with them.
MOST = 5000


class Sites:
    """Numbers the program points of one process; each is written once, when it is first seen.

    Args:
        write: Takes one row for the run directory.
    """

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._kinds: dict[CodeType, int] = {}
        self._by_address: dict[tuple[Any, ...], int] = {}
        self._by_frames: dict[tuple[tuple[str, int, str], ...], int] = {}
        self._prefixes = _library_folders()

    def here(self, frame: FrameType | None, waiting_thread: int | None = None) -> int:
        """The number of the program point in which ``frame`` is.

        Args:
            frame: Where to start looking outward.
            waiting_thread: A thread that waits for this one (autograd runs the backward pass in
                threads of its own, which have no frame of the user): its place is added when
                nothing of the user's own is found here.

        Returns:
            The site's number; its row has been written.
        """
        kept = self.users(frame)
        if waiting_thread is not None and not self._own(kept):
            waiting = self.users(sys._current_frames().get(waiting_thread))
            own = [found for found in waiting if self._own([found])][:1]
            kept = [*kept[: DEPTH - 1], *own] if kept else waiting
        if not kept:
            kept = [found for found in _outward(frame) if not self._is_ours(found)][:DEPTH]
        address = tuple([(found.f_code, found.f_lasti) for found in kept])
        number = self._by_address.get(address)
        return self._number(address, kept) if number is None else number

    def frames(self, frame: FrameType | None) -> tuple[tuple[str, int, str], ...]:
        """The user's frames as they are recorded, innermost first, for :meth:`of`."""
        return self._recorded(self.users(frame))

    def cores_start(self, frame: FrameType | None) -> None:
        """Keep where the cores are started, for those whose stacks have no frame of the user.

        The line that called the framework is theirs; their processes inherit it.
        """
        own = [found for found in self.users(frame) if self._own([found])][:1]
        os.environ.pop(STARTED_AT, None)
        if own:
            os.environ[STARTED_AT] = json.dumps(_as_recorded(own))

    def of(self, frames: tuple[tuple[str, int, str], ...]) -> int:
        """The number of a place that :meth:`frames` gave."""
        return self._number_of(frames)

    def named(self, place: tuple[str, int, str]) -> int:
        """The number of a place that is known by file, row and function."""
        return self._number_of((place,))

    def at_error(self, error: BaseException) -> int | None:
        """The number of the innermost line of the user in an exception's traceback."""
        frames: list[tuple[str, int, str]] = []
        own: tuple[str, int, str] | None = None
        for frame, row in traceback.walk_tb(error.__traceback__):
            kind = self._kind(frame)
            if kind != _LIBRARY:
                frames.insert(0, (frame.f_code.co_filename, row, frame.f_code.co_name))
            if kind == _OWN:
                own = frames[0]
        kept = frames[:DEPTH]
        if own is not None and own not in kept:
            kept[-1] = own
        return self._number_of(tuple(kept)) if kept else None

    def traceback_of(self, error: BaseException) -> str:
        """An exception's traceback as text, without the frames of this package."""
        whole = traceback.TracebackException.from_exception(error)
        ours = self._prefixes[1][0]
        kept = [entry for entry in whole.stack if not entry.filename.startswith(ours)]
        whole.stack = traceback.StackSummary.from_list(kept)
        return "".join(whole.format())

    def users(self, frame: FrameType | None, most: int = DEPTH) -> list[FrameType]:
        """The user's frames, innermost first: none of torch, torch_xla, Python itself or ours.

        If the innermost of them are all of other packages (a framework), the last one is the
        innermost of the user's own, however far out that is.
        """
        kept: list[FrameType] = []
        known = self._kinds
        own = False
        while frame is not None:  # a loop of its own: this is most of what a known place costs
            kind = known.get(frame.f_code)
            if kind is None:
                kind = self._kind(frame)
            if kind:
                if len(kept) < most:
                    kept.append(frame)
                elif kind == _OWN:
                    kept[-1] = frame
                own = own or kind == _OWN
                if own and len(kept) >= most:
                    break
            frame = frame.f_back
        return kept

    def _kind(self, frame: FrameType) -> int:
        kind = self._kinds.get(frame.f_code)
        if kind is None:
            if len(self._kinds) >= 10 * MOST:
                self._kinds.clear()  # code that the program makes anew again and again
            if self._is_library(frame.f_code.co_filename, frame):
                kind = _LIBRARY
            else:
                kind = _OWN if is_users_own(frame) else _PACKAGE
            self._kinds[frame.f_code] = kind
        return kind

    def _own(self, frames: list[FrameType]) -> bool:
        return any(self._kind(frame) == _OWN for frame in frames)

    def _recorded(self, kept: list[FrameType]) -> tuple[tuple[str, int, str], ...]:
        """The frames as rows; if none is the user's own, with the line that started the cores."""
        rows = _as_recorded(kept)
        started = os.environ.get(STARTED_AT)
        if started and any(self._kind(one) for one in kept) and not self._own(kept):
            with contextlib.suppress(ValueError, TypeError):
                rows = (*rows[: DEPTH - 1], *(tuple(row) for row in json.loads(started)))
        return rows

    def _is_library(self, filename: str, frame: FrameType) -> bool:
        if filename == "<string>":
            # What python -c runs is the user's; what a file has generated (the methods of a
            # dataclass) has no line that anyone could look up: its caller has.
            return "__file__" in frame.f_globals
        if filename.startswith("<"):
            # "<stdin>" is the user's; frozen modules and torch.fx code are not.
            return filename.startswith(("<frozen", "<eval_with_key"))
        path = os.path.abspath(filename)
        standard, others = self._prefixes
        if path.startswith(others):
            return True
        return path.startswith(standard) and not any(
            part in path
            for part in (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
        )

    def _is_ours(self, frame: FrameType) -> bool:
        return os.path.abspath(frame.f_code.co_filename).startswith(self._prefixes[1][0])

    def _number(self, address: tuple[Any, ...], kept: list[FrameType]) -> int:
        number = self._number_of(self._recorded(kept))
        if len(self._by_address) < 4 * MOST:
            self._by_address[address] = number
        return number

    def _number_of(self, frames: tuple[tuple[str, int, str], ...]) -> int:
        with self._lock:
            if len(self._by_frames) >= MOST and frames not in self._by_frames:
                frames = (("<other places>", 0, "?"),)
            number = self._by_frames.get(frames)
            if number is None:
                number = len(self._by_frames)
                self._write({"e": "site", "id": number, "frames": [list(f) for f in frames]})
                self._by_frames[frames] = number
            return number


def is_users_own(frame: FrameType) -> bool:
    """Whether a frame is of the user's own code, and not of an installed package."""
    return "-packages" + os.sep not in frame.f_code.co_filename


def _as_recorded(kept: list[FrameType]) -> tuple[tuple[str, int, str], ...]:
    return tuple(
        (_file(found.f_code.co_filename), found.f_lineno or 0, found.f_code.co_name)
        for found in kept
    )


def _file(name: str) -> str:
    """A file as its reader knows it: a cell of a notebook is "In [3]", not a temporary file."""
    ipython = sys.modules.get("IPython")
    if ipython is None or f"{os.sep}ipykernel_" not in name:
        return name
    try:
        number = ipython.get_ipython().compile._filename_map[name]
    except Exception:
        return name
    return f"In [{number}]"


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _library_folders() -> tuple[str, tuple[str, ...]]:
    """The standard library's folder, and what begins like a file of torch, torch_xla or us."""
    folders = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    for name in ("torch", "torch_xla", "torch_tpu"):
        path = getattr(sys.modules.get(name), "__file__", None)
        if path:
            folders.append(os.path.dirname(os.path.abspath(path)))
    folders.append(os.path.join(sys.prefix, "bin"))  # commands such as torchrun and accelerate
    standard = os.path.dirname(os.path.abspath(os.__file__))
    # What torch_xla marks as deprecated (xm.mark_step) is called through a wrapper of this module.
    wrapper = getattr(sys.modules.get("typing_extensions"), "__file__", None)
    files = () if wrapper is None else (os.path.abspath(wrapper),)
    return standard + os.sep, (*(folder + os.sep for folder in folders), *files)
