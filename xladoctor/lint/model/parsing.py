"""A file's syntax: LibCST's nodes without white space, which LibCST fills in if it is asked for."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor.lint import sources
from xladoctor.lint.model.converted import converted
from xladoctor.lint.model.making import UnlikeError
from xladoctor.lint.model.parts import children, left_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xladoctor.lint.model.rows import Rows


class Parsed:
    """A file's syntax.

    Attributes:
        text: What was parsed.
        module: LibCST's node for it.
        twins: The nodes of Python's parser that nodes were made of; empty if LibCST parsed it.
        rows: The rows of the text, if there are twins.
        is_whole: Whether the nodes hold white space and punctuation.

    Args:
        text: What to parse.
        convert: Whether Python's parser may parse it, where that is enough.

    Raises:
        libcst.ParserSyntaxError: It is not Python.
    """

    def __init__(self, text: str, *, convert: bool = True) -> None:
        self.text = text
        self.twins: Mapping[cst.CSTNode, ast.AST] = {}
        self.rows: Rows | None = None
        tree = sources.parse(text) if convert else None
        if isinstance(tree, ast.Module):
            try:
                self.module, self.twins, self.rows = converted(text, tree)
            except (UnlikeError, RecursionError):
                pass
            else:
                self.is_whole = False
                return
        self.module = cst.parse_module(text)
        self.is_whole = True

    def complete(self) -> None:
        """Let the nodes hold all that LibCST's hold: white space and punctuation too."""
        if self.is_whole:
            return
        self.is_whole = True
        waiting: list[tuple[cst.CSTNode, cst.CSTNode]] = [
            (self.module, cst.parse_module(self.text))
        ]
        while waiting:
            mine, other = waiting.pop()
            for name, put in _setters(type(mine)):
                put(mine, getattr(other, name))
            waiting.extend(zip(children(mine), children(other), strict=True))


@functools.lru_cache(maxsize=40)
def parsed(name: str, text: str) -> Parsed:  # noqa: ARG001  (nodes belong to one file)
    """A file's syntax; while an editor changes one file of many, the others are not parsed again.

    Raises:
        libcst.ParserSyntaxError: It is not Python.
    """
    return Parsed(text)


@functools.cache
def _setters(kind: type[cst.CSTNode]) -> Sequence[tuple[str, Callable[[Any, Any], None]]]:
    return [(name, getattr(kind, name).__set__) for name in left_out(kind)]
