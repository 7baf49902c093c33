"""Lines of several cores that print at the same time stay whole.

``print`` hands its arguments, the spaces between them and the end of the line to the stream one by
one. Cores that are processes have a stream each; cores that are threads would write into each
other's lines.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any

from .belongings import standard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class WholeLines:
    """A text stream that keeps what a thread writes until its line ends, or until it flushes.

    There is no lock: a forked process could inherit it held.

    Args:
        stream: Where the lines go; everything but writing and flushing is left to it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        #: What each thread has begun to write, by the thread's number.
        self._begun: dict[int, str] = {}

    def write(self, text: str) -> int:
        """Write the lines that end in the text, and keep the rest."""
        thread = threading.get_ident()
        lines, end, rest = (self._begun.pop(thread, "") + text).rpartition("\n")
        if rest:
            self._begun[thread] = rest
        if end:
            self._stream.write(lines + end)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what the calling thread has begun."""
        begun = self._begun.pop(threading.get_ident(), "")
        if begun:
            self._stream.write(begun)
        self._stream.flush()

    def flush_all(self) -> None:
        """Write what any thread has begun."""
        for thread in list(self._begun):
            self._stream.write(self._begun.pop(thread, ""))
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def whole_lines() -> Iterator[None]:
    """Keep the lines of standard output and error whole until the context ends."""
    ours: dict[str, WholeLines] = {}
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None:
            ours[name] = WholeLines(stream)
            setattr(sys, name, ours[name])
    # The output that xm.master_print writes to was settled when it was defined.
    settled = getattr(_master_print(), "__kwdefaults__", None) or {}
    before = settled.get("fd")
    if "stdout" in ours and before is ours["stdout"]._stream:
        settled["fd"] = ours["stdout"]
    try:
        yield
    finally:
        if before is not None:
            settled["fd"] = before
        for name, stream in ours.items():
            stream.flush_all()
            if getattr(sys, name) is stream:  # else the program has put its own around it
                setattr(sys, name, stream._stream)


def _master_print() -> Any:
    return getattr(sys.modules.get("torch_xla.core.xla_model"), "master_print", None)


def flush_all() -> None:
    """Write what any core has begun to print: the process is about to end."""
    for stream in (standard("stdout"), standard("stderr")):
        if isinstance(stream, WholeLines):
            stream.flush_all()
        elif stream is not None:
            stream.flush()
