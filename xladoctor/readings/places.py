"""Where in the user's program something was, from the frames that were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.findings import Location

if TYPE_CHECKING:
    from xladoctor.readings import tables

#: What watches the program from inside, in a checkout of ours.
_OURS = "/xladoctor/capture/"


def location(frames: tuple[tables.Frame, ...], cwd: str | None = None) -> Location | None:
    """The first frame of the user's own code, with a path relative to where the command ran.

    Args:
        frames: Innermost first.
        cwd: The command's working directory.

    Returns:
        None without frames; the innermost frame if all of them are in installed packages.
    """
    if not frames:
        return None
    own = (frame for frame in frames if "-packages/" not in frame[0] and _OURS not in frame[0])
    file, row, function = next(own, frames[0])
    return Location(_relative(file, cwd), row, function=function)


def _relative(file: str, cwd: str | None) -> str:
    path = Path(file)
    if cwd is not None and path.is_absolute() and path.is_relative_to(cwd):
        return str(path.relative_to(cwd))
    return file
