"""XLA002: suppressions that suppress nothing, as RUF100 of ruff.

Only codes whose rules were asked are judged, and only where the linter can know: what happens in a
function may depend on a caller in a file that was not given.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.findings import Applicability, Edit, Fix, Position
from xladoctor.lint import rules as registry
from xladoctor.lint.asked import UNUSED
from xladoctor.lint.model.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xladoctor.lint.model.file import FileModel
    from xladoctor.lint.model.syntax import Function
    from xladoctor.lint.suppressions import Directive, Suppressions

_SELF = ("XLA001", UNUSED)
_DEPTH = 5


def unused(
    model: FileModel, suppressions: Suppressions, asks: Callable[[str], bool]
) -> Iterator[Problem]:
    """Problems of the file's suppression comments.

    Args:
        model: The file.
        suppressions: Its comments, after they were applied.
        asks: Whether a rule was asked.
    """
    if not model.is_xla or not suppressions.directives:
        return
    known = {code for code, page in catalogue.pages().items() if "lint" in page.found_by}
    known |= set(registry.rules())
    others = set(catalogue.pages()) - known
    places = _Places(model)
    for directive in suppressions.directives:
        idle = [code for code in directive.codes if _is_idle(code, known, others, asks)]
        idle = [code for code in idle if (directive, code) not in suppressions.used]
        if idle and places.judged(directive):
            yield _problem(model, directive, idle)


def _is_idle(code: str, known: set[str], others: set[str], asks: Callable[[str], bool]) -> bool:
    """Whether silence about a code says that nothing was there."""
    meant = {item for item in known if item.startswith(code)}
    if not code or code in _SELF or any(item.startswith(code) for item in others):
        return False
    if not meant:
        return re.fullmatch(r"XLA\d+", code) is not None  # no such rule
    return all(asks(item) for item in meant - set(_SELF))


def _problem(model: FileModel, directive: Directive, idle: list[str]) -> Problem:
    row = directive.row
    line = model.lines[row - 1]
    kept = [code for code in directive.codes if code not in idle]
    start, end = directive.start, len(line)
    if kept:
        end = directive.end
        content = f"{directive.opening}{', '.join(kept)}{directive.closing}"
    else:
        content = ""
        rest = line[directive.end :].lstrip()
        if rest.startswith("#"):
            end = len(line) - len(rest)
        else:
            start = len(line[:start].rstrip())
    edit = Edit(content, Position(row, start + 1), Position(row, end + 1))
    if not kept and start == 0 and end == len(line) and row < len(model.lines):
        edit = Edit("", Position(row, 1), Position(row + 1, 1))
    where = "in this file" if directive.whole else "here"
    what = f"{', '.join(idle)} {'is' if len(idle) == 1 else 'are'} silenced {where}"
    return Problem(
        Place(Position(row, directive.start + 1), Position(row, directive.end + 1)),
        f"{what}, but nothing of the kind is found",
        "remove it: it would hide the next problem",
        fix=Fix(Applicability.SAFE, f"Remove {', '.join(idle)}", (edit,)),
    )


class _Places:
    """Which comments stand where all that matters is known."""

    def __init__(self, model: FileModel) -> None:
        self.model = model

    @functools.cached_property
    def _rows(self) -> list[tuple[int, int, Function]]:
        """The rows of each function; not asked for where no comment is idle, as in most files."""
        rows: list[tuple[int, int, Function]] = []
        for function in self.model.functions:
            if isinstance(function.node, cst.FunctionDef):
                found = self.model.tree.range(function.node)
                rows.append((found.start.line, found.end.line, function))
        return rows

    def judged(self, directive: Directive) -> bool:
        functions = (
            [function for _, _, function in self._rows]
            if directive.whole
            else [f for first, last, f in self._rows if first <= directive.row <= last]
        )
        return all(self._called(function, _DEPTH) for function in functions)

    def _called(self, function: Function, depth: int) -> bool:
        """Whether it is known with what a function is called; one without parameters needs it not.

        Methods that a framework calls, and functions that are started on the cores, are known.
        """
        parameters = function.arguments
        if not parameters and not function.keyword_only and function.owner is None:
            return True
        if self.model.on_every_core(function.node.body) or self.model.is_loop(function.node):
            return True
        if depth == 0:
            return False
        outers = (self.model.function_of(site.node) for site in self.model.callers(function))
        return any(outer is None or self._called(outer, depth - 1) for outer in outers)
