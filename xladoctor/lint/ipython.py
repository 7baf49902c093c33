"""What IPython makes of the lines of a cell before Python sees them, so that no line moves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAGIC = re.compile(r"^(?P<indent>[ \t]*)(?P<rest>[%!?].*|[\w.\[\]'\"]+\?{1,2}\s*)$")
_ASSIGNED_MAGIC = re.compile(r"^(?P<target>[ \t]*[\w., ]+=\s*)(?P<rest>[!%].*)$")
#: Cell magics after which the cell is still Python.
_PYTHON_CELLS = frozenset(
    [
        "capture",
        "prun",
        "time",
        "timeit",
        "debug",
        "memit",
        "mprun",
        "lprun",
        "xladoctor",
        "python",
        "python3",
        "py3",
    ]
)
#: Line magics and aliases that people write without ``%`` (IPython 9: ``automagic``).
_WITHOUT_SIGN = frozenset(
    [
        "cat", "cd", "clear", "conda", "config", "cp", "dirs", "env", "history", "ldir", "less",
        "lf", "lk", "ll", "load", "load_ext", "ls", "lsmagic", "lx", "magic", "mamba", "man",
        "matplotlib", "micromamba", "mkdir", "more", "mv", "pip", "popd", "precision", "pushd",
        "pwd", "pylab", "reload_ext", "rm", "rmdir", "run", "set_env", "system", "time", "timeit",
        "unload_ext", "uv", "who", "whos",
    ]
)  # fmt: skip
_AUTOMAGIC = re.compile(r"^[ \t]*(?P<line>(?P<name>[a-z_]+)(?:[ \t]+(?![=,]).*)?)$")
_INDENT = re.compile(r"[ \t]*")


def automagic(lines: Sequence[str]) -> tuple[list[str], list[tuple[int, str]]] | None:
    """``pip install timm`` and ``cd folder``, which are magics where a cell has no other line.

    Returns:
        As :func:`neutralise`; None of other cells.
    """
    rows = [row for row, line in enumerate(lines, 1) if line.strip()]
    behind = len(lines) - rows[-1] if rows else 0
    found = _AUTOMAGIC.match(lines[rows[0] - 1]) if len(rows) == 1 and behind <= 1 else None
    if found is None or found["name"] not in _WITHOUT_SIGN:
        return None
    python = ["pass" if line.strip() else "" for line in lines]
    return python, [(rows[0], found["line"])]


def indent_of(lines: Sequence[str]) -> int:
    """How far all lines of a cell are indented: IPython moves them to the left."""
    said = [line for line in lines if line.strip()]
    first = _INDENT.match(said[0]) if said else None
    alike = first is not None and all(line.startswith(first[0]) for line in said)
    return len(first[0]) if first is not None and alike else 0


def neutralise(lines: Sequence[str]) -> tuple[list[str], list[tuple[int, str]]]:
    """Put ``pass`` where a cell has magics and shell lines, so that no line moves.

    Returns:
        The lines as Python, and what was taken out as (row from 1, line).
    """
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    taken: list[tuple[int, str]] = []
    if first is not None and lines[first].startswith("%%"):
        words = lines[first][2:].split()
        if not words or words[0] not in _PYTHON_CELLS:
            return [""] * len(lines), [(i + 1, line) for i, line in enumerate(lines)]
    result: list[str] = []
    continued = False
    for row, line in enumerate(lines, start=1):
        magic = _MAGIC.match(line)
        assigned = _ASSIGNED_MAGIC.match(line)
        if continued:
            taken.append((row, line))
            result.append("")
        elif magic is not None:
            taken.append((row, magic["rest"]))
            result.append(f"{magic['indent']}pass")
        elif assigned is not None:
            taken.append((row, assigned["rest"]))
            result.append(f"{assigned['target']}None")
        else:
            result.append(line)
            continue
        continued = line.rstrip().endswith("\\")
    return result, taken
