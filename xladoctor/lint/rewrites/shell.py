"""Fixes of what is no Python: shell lines and magics of notebooks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xladoctor.findings import Edit, Position

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel

#: What stands in the text for a line that was taken out of it (see ``ipython.neutralise``).
_PLACEHOLDER = re.compile(r"^(?P<indent>[ \t]*)(?:pass)?$")


def write_row(model: FileModel, row: int, line: str, content: str) -> Edit | None:
    """Write something else in place of a whole shell line.

    Args:
        model: The notebook.
        row: The row of the text, as in ``model.shell``.
        line: The line as it is written there.
        content: What to write instead.

    Returns:
        None for a line that is only part of a command: assigned (``x = !ls``), or continued.
    """
    rows = dict(model.shell)
    placeholder = _PLACEHOLDER.match(model.lines[row - 1])
    before = rows.get(row - 1, "")
    if placeholder is None or line.rstrip().endswith("\\") or before.rstrip().endswith("\\"):
        return None
    indent = "" if not model.lines[row - 1].strip() else placeholder["indent"]
    start, end = len(indent) + 1, len(indent) + len(line) + 1
    return Edit(content, Position(row, start), Position(row, end))


def comment_out(model: FileModel, row: int, line: str) -> Edit | None:
    """Keep a shell line as a comment."""
    return write_row(model, row, line, f"# {line}")
