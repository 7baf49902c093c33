"""A file's syntax: LibCST's nodes without white space, which LibCST fills in if it is asked for."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
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
        waiting: list[tuple[cst.CSTNode, cst.CSTNode]] = [(self.module, _by_libcst(self.text))]
        self.is_whole = True
        while waiting:
            mine, other = waiting.pop()
            for name, put in _setters(type(mine)):
                put(mine, getattr(other, name))
            waiting.extend(zip(children(mine), children(other), strict=True))


def _by_libcst(text: str) -> cst.Module:
    """LibCST's nodes of a text that Python's parser takes.

    LibCST compares indentations as they are written, Python by their columns (``tokenizer error: no
    matching outer block for dedent`` of LibCST 1.8): where only Python takes them, tabs are spelled
    out.
    """
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError:
        return cst.parse_module(_without_tabs(text))


def _without_tabs(text: str) -> str:
    """The text with spaces for the tabs before its statements, to the columns Python counts."""
    lines = list(io.StringIO(text))
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _AROUND:
            continue
        if begins:
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:column].expandtabs(8) + line[column:]
        begins = token.type == tokenize.NEWLINE
    return "".join(lines)


#: What stands around statements.
_AROUND = frozenset(
    {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


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
