"""The outermost boundary: what nobody foresaw ends in one sentence, exit code 2 and a file to send.

Exit code 1 means findings, so nothing that goes wrong inside may end with it; and a traceback tells
a user neither what to do nor whom to ask.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import click

from xladoctor import __version__, visible
from xladoctor.errors import XladoctorError

if TYPE_CHECKING:
    from collections.abc import Sequence

_REPORT_TO = "https://github.com/xladoctor/xladoctor/issues"
#: Characters of an unforeseen error's own words in the sentence; the file has all of them.
_WIDTH = 300


def told(error: BaseException, argv: Sequence[str] | None = None) -> int:
    """Say in one sentence what went wrong; what was not foreseen also leaves its details in a file.

    Args:
        error: What was raised.
        argv: The command's words after ``xladoctor``; by default those of this process.

    Returns:
        The exit code, which is never 1.
    """
    if isinstance(error, XladoctorError):
        _say(str(error))
        return error.exit_code
    words = list(sys.argv[1:] if argv is None else argv)
    kept = _keep(error, words)
    if isinstance(error, OSError):
        name = error.filename
        where = f" ({os.fsdecode(name)})" if isinstance(name, str | bytes) else ""
        what = f"the system refused something: {error.strerror or error}{where}"
    else:
        what = f"internal error: {_in_words(error)}"
    details = f"the details are in {kept}" if kept else "the details could not be written"
    _say(f"{what}; {details}, please send them to {_REPORT_TO}")
    return 2


def see_streams() -> None:
    """Let text be written that the streams cannot encode: as escapes, instead of not at all."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Have standard output written now, where its failure can still be told.

    Raises:
        OSError: The disk is full, or the reader has gone.
    """
    if sys.stdout is not None:
        sys.stdout.flush()


def leave_stdout() -> None:
    """Stop writing to standard output for good: Python would try again at the end and complain."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"xladoctor: {visible.line(sentence)}", err=True)


def _in_words(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:  # noqa: BLE001  (an error of a plugin may be anything)
        said = "(it cannot be shown)"
    kind = type(error).__name__
    said = said if len(said) <= _WIDTH else f"{said[:_WIDTH]} ..."
    return f"{kind}: {said}" if said else kind


def _keep(error: BaseException, words: Sequence[str]) -> str | None:
    """Write the details into a file of the system's folder for such; its name, None without one."""
    import tempfile

    with contextlib.suppress(Exception):
        text = _details(error, words)
        descriptor, name = tempfile.mkstemp(prefix="xladoctor-error-", suffix=".txt")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)  # noqa: PTH108
            return None
        return name
    return None


def _details(error: BaseException, words: Sequence[str]) -> str:
    import platform
    import shlex
    import traceback

    from xladoctor.capture.masking import masked

    found = traceback.TracebackException.from_exception(error, limit=-60)
    return (
        f"xladoctor {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"command: xladoctor {shlex.join(masked(words))}\n\n{''.join(found.format())}"
    )
