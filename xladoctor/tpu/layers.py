"""Which module of the model an operation belongs to, from the Python stack of its trace.

A module's forward pass stands on the stack right inside ``torch.nn.Module._call_impl``. The stack
names files and rows; the class is read from the file, and what it is called as ("encoder") from the
row that calls it. Nothing of it is needed: where a file is gone or has changed, the module is not
known, and the operation still has its line.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from xladoctor import files
from xladoctor.costs import OPTIMIZER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.readings.tables import Frame

#: Bytes of a file of Python; those of libraries have some hundreds of kilobytes.
_LARGEST = 4 * 2**20

_CALLER = ("torch/nn/modules/module.py", "_call_impl")
_TORCH = "/torch/nn/modules/"
_OPTIMIZERS = "/torch/optim/"
_ATTRIBUTE = re.compile(r"\bself\.(\w+(?:\[[\w\"']+\])?)\(")


class Layers:
    """Reads files once; ask :meth:`path` for each stack."""

    def __init__(self) -> None:
        self._files: dict[str, _File | None] = {}
        self._known: dict[tuple[Frame, ...], tuple[str, ...]] = {}

    def path(self, frames: tuple[Frame, ...]) -> tuple[str, ...]:
        """The modules around an operation, the outermost first.

        ``("Net.encoder", "Block.attention", "Attention")``: each but the last with the attribute
        through which it calls the next, if the row shows it. Modules of torch itself
        (``Linear``) are left out unless there are no others. ``("optimizer SGD",)`` for what an
        optimizer of torch does; empty if it is of no module, or not known.

        Args:
            frames: The stack, innermost first.
        """
        if frames not in self._known:
            self._known[frames] = tuple(self._path(frames))
        return self._known[frames]

    def _path(self, frames: Sequence[Frame]) -> Iterator[str]:
        forward = [frame for frame in _forward(frames) if self._class(frame)]
        own = [frame for frame in forward if _TORCH not in frame[0]]
        chosen = own or forward
        for frame in chosen[:-1]:
            attribute = self._attribute(frame)
            yield f"{self._class(frame)}.{attribute}" if attribute else self._class(frame)
        if chosen:
            yield self._class(chosen[-1])
            return
        for frame in reversed(frames):
            if _OPTIMIZERS in frame[0] and frame[2] == "step" and self._class(frame):
                yield f"{OPTIMIZER}{self._class(frame)}"
                return

    def _class(self, frame: Frame) -> str:
        """The class around a row; "" if it is not known."""
        file = self._file(frame[0])
        return file.class_at(frame[1]) if file is not None else ""

    def _attribute(self, frame: Frame) -> str:
        """What a row calls through ``self``, if that is one thing."""
        file = self._file(frame[0])
        found = set(_ATTRIBUTE.findall(file.row(frame[1]))) if file is not None else set()
        return found.pop() if len(found) == 1 else ""

    def _file(self, name: str) -> _File | None:
        if name not in self._files:
            try:
                self._files[name] = _File(
                    files.read_bytes(name, _LARGEST).decode("utf-8", "replace")
                )
            except (OSError, ValueError, SyntaxError, RecursionError):
                self._files[name] = None
        return self._files[name]


def _forward(frames: Sequence[Frame]) -> Iterator[Frame]:
    """The forward passes on a stack, the outermost first.

    Decorators stand between ``_call_impl`` and the forward pass itself: it is the first frame
    inside that has its name.
    """
    waiting = False
    for frame in reversed(frames):
        if frame[2] == _CALLER[1] and frame[0].endswith(_CALLER[0]):
            waiting = True
        elif waiting and frame[2] == "forward":
            waiting = False
            yield frame


class _File:
    """The classes of a file, by their rows."""

    def __init__(self, text: str) -> None:
        self._rows = text.splitlines()
        self._classes = [
            (node.lineno, node.end_lineno or node.lineno, node.name)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ClassDef)
        ]

    def class_at(self, row: int) -> str:
        """The innermost class around a row; "" if there is none."""
        around = [(first, name) for first, last, name in self._classes if first <= row <= last]
        return max(around)[1] if around else ""

    def row(self, row: int) -> str:
        """The text of a row; "" if there is no such row."""
        return self._rows[row - 1] if 0 < row <= len(self._rows) else ""
