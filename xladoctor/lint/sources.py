"""What is linted: Python files, notebooks and standard input, as text with its places."""

from __future__ import annotations

import ast
import codecs
import dataclasses
import functools
import io
import json
import os
import re
import tokenize
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor.errors import SourceError
from xladoctor.findings import Location, Position
from xladoctor.lint.ipython import automagic, indent_of, neutralise
from xladoctor.lint.looked import LARGEST, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SHELL_LINE = re.compile(r"^[ \t]*[!%][ \t]*[A-Za-z]", re.MULTILINE)
_ROW_END = re.compile(r"\r\n|\r|\n")
_ALLOW = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_LONGEST_CHAIN = 800
#: Levels of the syntax tree; the visitors reach Python's recursion limit long before.
_DEEPEST = 1000
#: What an expression needs one of for two further levels of its tree, or for a link of a chain.
_LEVEL = re.compile(r"[^\w\s,'\"#]|\b(?:not|and|or|lambda|if|for|await|yield)\b")
TOO_DEEP = "is nested too deeply to be linted"


@dataclasses.dataclass(frozen=True, slots=True)
class Unreadable:
    """A part of a source that cannot be read, with why; rows and columns count from 1.

    ``fatal``: no other parser may try (too deep, or not text).
    """

    message: str
    row: int = 1
    column: int = 1
    cell: int | None = None
    fatal: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A code cell of a notebook inside the text made of all of them.

    Attributes:
        index: 0-based index in the notebook's ``cells``.
        first: Row of the text (from 1) that is the cell's first row.
        rows: How many rows it has.
        indent: How much deeper all its lines stand in the notebook: IPython takes that away.
    """

    index: int
    first: int
    rows: int
    indent: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """One file to lint.

    Attributes:
        filename: As the user gave it.
        text: The Python in it, newlines as they are; "" if it could not be read.
        cells: Where the code cells are, for a notebook.
        shell: Rows (from 1, of ``text``) that are shell lines or magics of a notebook, as written.
        unreadable: What could not be read.
        encoding: How the file is encoded, for writing it back ("utf-8-sig" keeps its BOM).
        written: The rows as people wrote them, where ``text`` has something else for shell lines,
            magics and indented cells; () if it has them as they are.
    """

    filename: str
    text: str
    cells: tuple[Cell, ...] | None = None
    shell: tuple[tuple[int, str], ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    encoding: str = "utf-8"
    written: tuple[str, ...] = ()

    @property
    def rows(self) -> Sequence[str]:
        """The rows as they are written, shell lines and magics too."""
        return self.written or rows(self.text)

    def cell_at(self, row: int) -> Cell | None:
        """The notebook cell that holds a row of the text."""
        return next(
            (item for item in self.cells or () if item.first <= row < item.first + item.rows), None
        )

    def location(
        self, start: Position, end: Position, note: str | None = None, function: str | None = None
    ) -> Location:
        """A range of the text as a place of the file; inside its cell for a notebook."""
        cell = self.cell_at(start.row)
        shift = cell.first - 1 if cell else 0
        indent = cell.indent if cell else 0
        return Location(
            self.filename,
            start.row - shift,
            start.column + indent,
            end.row - shift,
            end.column + indent,
            function=function,
            cell=cell.index if cell else None,
            note=note,
        )


def read(path: Path, filename: str | None = None) -> Source:
    """Read a file; what is wrong with its content is in ``unreadable``, never raised.

    Args:
        path: The file.
        filename: What to call it; the path by default.
    """
    name = filename or str(path)
    try:
        data = load(path)
    except OSError as error:
        reason = error.strerror or str(error)
        return Source(name, "", unreadable=(Unreadable(f"cannot be read: {reason}"),))
    return from_bytes(data, name)


def from_bytes(data: bytes, filename: str) -> Source:
    """Make a source of a file's bytes; the name's ending tells a notebook from Python."""
    if filename.endswith(".ipynb"):
        return _notebook(data, filename)
    try:
        text, encoding = decode(data)
    except SourceError as error:
        return Source(filename, "", unreadable=(Unreadable(str(error)),))
    return _exported(filename, text, encoding) or Source(filename, text, encoding=encoding)


def _exported(filename: str, text: str, encoding: str) -> Source | None:
    """A notebook's lines saved as Python, shell lines and magics as they were; None if it is none.

    IPython runs such files, and collections of public kernels hold many.
    """
    if _SHELL_LINE.search(text) is None or syntax_error(text) is None:
        return None
    written = rows(text)
    neutral, shell = neutralise(_ROW_END.split(text))
    python = "\n".join(neutral)
    problem = syntax_error(python)
    if not shell or (problem is not None and not _is_newer(python, problem)):
        return None
    return Source(filename, python, shell=tuple(shell), encoding=encoding, written=tuple(written))


def decode(data: bytes) -> tuple[str, str]:
    """Text and encoding of Python source, by its BOM or coding line (PEP 263), else UTF-8.

    Raises:
        SourceError: The bytes are not in that encoding, or it is not known.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding), encoding
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise SourceError(
            f"is not {error.encoding.upper()} text (byte 0x{data[error.start]:02x} in line {row}): "
            "save it as UTF-8 or declare its encoding in the first line"
        ) from error
    except (SyntaxError, LookupError, ValueError) as error:  # "undefined", "idna": no UnicodeDecode
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise SourceError(
                "is UTF-16 text, which Python cannot run: save it as UTF-8"
            ) from error
        raise SourceError(
            f"is not text in a known encoding ({error}): save it as UTF-8 or declare its encoding"
        ) from error


def absolute(path: str | Path) -> Path:
    """A path from the root, without ``..``; links are not followed, as names are the user's."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def syntax_error(text: str) -> Unreadable | None:
    """What Python's own parser says against a text, None if it parses."""
    parsed = parse(text)
    return parsed if isinstance(parsed, Unreadable) else None


@functools.lru_cache(maxsize=2)
def parse(text: str) -> ast.Module | Unreadable:
    """What Python's own parser makes of a text, or says against it; of the last two kept."""
    return parsed(text)


def parsed(text: str) -> ast.Module | Unreadable:
    """What Python's own parser makes of a text, or says against it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = compile(text, "<source>", "exec", _ALLOW, dont_inherit=True)
            assert isinstance(tree, ast.Module)
            return tree
    except SyntaxError as error:
        return Unreadable(
            f"does not parse: {error.msg}",
            max(error.lineno or 1, 1),
            max(error.offset or 1, 1),
            fatal="nested" in error.msg or "too many" in error.msg or "null byte" in error.msg,
        )
    except ValueError as error:
        return Unreadable(f"does not parse: {error}", fatal=True)
    except (RecursionError, MemoryError):
        return Unreadable(TOO_DEEP, fatal=True)


def too_much(text: str) -> Unreadable | None:
    """Whether a text parses, but LibCST's parser cannot take it.

    Below some thousand levels it overflows the stack of the process, which nothing can catch. For
    ``a(1)(2)(3)...`` its time grows with the square of the length (0.5 s for 800, measured with
    LibCST 1.8).
    """
    tree = parse(text)
    if not isinstance(tree, ast.Module) or _is_simple(tree, text):
        return None
    level: list[ast.AST] = [tree]
    lengths: dict[ast.AST, int] = {}
    depth = 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            return Unreadable(TOO_DEEP, _row(level), fatal=True)
        for node in level:
            if not isinstance(node, ast.Call | ast.Subscript | ast.Attribute):
                continue
            inner = node.func if isinstance(node, ast.Call) else node.value
            length = lengths.pop(node, 0) + 1
            if length > _LONGEST_CHAIN:
                what = f"has more than {_LONGEST_CHAIN} calls or indices in one chain"
                return Unreadable(f"{what}: too long to be linted", node.lineno, fatal=True)
            lengths[inner] = length
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return None


def statements(tree: ast.Module) -> Iterator[tuple[int, ast.AST]]:
    """What holds the statements of a tree, and these, by level: much less than all its nodes."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        yield from ((depth, node) for node in level)
        depth += 1
        level = [
            child
            for node in level
            for name in _BLOCKS
            for child in getattr(node, name, ())
            if isinstance(child, _IN_BLOCKS)
        ]


_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
_IN_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def _is_simple(tree: ast.Module, text: str) -> bool:
    """Whether each statement by itself is too short for what LibCST cannot take.

    A bound that costs a small part of the look at every node, and holds for nearly all files.
    """
    starts = [0]
    starts.extend(match.end() for match in _ROW_END.finditer(text))
    starts.append(len(text))
    for depth, node in statements(tree):
        if not isinstance(node, ast.stmt | ast.ExceptHandler):
            continue
        body = getattr(node, "body", None)
        last: int = body[0].lineno if body else node.end_lineno or node.lineno
        above: list[ast.expr] = getattr(node, "decorator_list", [])
        first = above[0].lineno if above else node.lineno
        start, end = starts[first - 1], starts[min(last, len(starts) - 1)]
        if depth + 3 * (end - start) <= _LONGEST_CHAIN:
            continue
        if depth + 3 * len(_LEVEL.findall(text, start, end)) > _LONGEST_CHAIN:
            return False
    return True


def _row(nodes: Iterable[ast.AST]) -> int:
    """The first row of the first node that has one; those of operators have none."""
    return next((node.lineno for node in nodes if hasattr(node, "lineno")), 1)


def _notebook(data: bytes, filename: str) -> Source:
    try:
        document: Any = json.loads(data.decode("utf-8-sig"))
        cells = document["cells"] if "cells" in document else document["worksheets"][0]["cells"]
        found = [
            (index, _cell_text(cell))
            for index, cell in enumerate(cells)
            if cell.get("cell_type") == "code"
        ]
        language = document.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    except UnicodeDecodeError as error:
        return Source(
            filename,
            "",
            unreadable=(Unreadable(f"is not UTF-8 text (byte {error.start}): save it as UTF-8"),),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        what = Unreadable("is not a Jupyter notebook (no JSON object with cells)")
        return Source(filename, "", unreadable=(what,))
    if str(language).lower() != "python":
        return Source(filename, "", cells=())
    if sum(len(text) for _, text in found) > LARGEST:
        what = Unreadable(f"holds more than {LARGEST // 2**20} MB of code")
        return Source(filename, "", unreadable=(what,))
    return _join_cells(filename, found)


def _cell_text(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    return source if isinstance(source, str) else "".join(source)


def _join_cells(filename: str, found: Iterable[tuple[int, str]]) -> Source:
    rows: list[str] = []
    written: list[str] = []
    cells: list[Cell] = []
    shell: list[tuple[int, str]] = []
    unreadable: list[Unreadable] = []
    for index, text in found:
        lines = _ROW_END.split(text)
        written.extend(lines)
        indent = 0
        if syntax_error("\n".join(lines)) is not None:
            lines, magics = automagic(lines) or neutralise(lines)
            problem = syntax_error("\n".join(lines))
            shell.extend((len(rows) + row, line) for row, line in magics)
            if problem is not None and (indent := indent_of(lines)):
                lines = [line[indent:] for line in lines]
                problem = syntax_error("\n".join(lines))
            if problem is not None and not _is_newer("\n".join(lines), problem):
                unreadable.append(dataclasses.replace(problem, cell=index))
                lines = [""] * len(lines)
        cells.append(Cell(index, len(rows) + 1, len(lines), indent))
        rows.extend(lines)
    text = "\n".join(rows) + "\n" if rows else ""
    as_is = () if written == rows else tuple(written)
    return Source(filename, text, tuple(cells), tuple(shell), tuple(unreadable), written=as_is)


def _is_newer(text: str, problem: Unreadable) -> bool:
    """``f"{row["loss"]}"``: Python takes it since 3.12 (PEP 701), LibCST under any Python."""
    if problem.fatal or "f-string" not in problem.message:
        return False
    import libcst as cst  # no other cell needs it here

    try:
        cst.parse_module(text)
    except cst.ParserSyntaxError:
        return False
    return True


def rows(text: str) -> list[str]:
    """The rows of a text as Python counts them: a form feed or U+2028 ends none."""
    found = _ROW_END.split(text)
    return found[:-1] if found[-1] == "" else found


def difference(name: str, before: bytes, after: bytes) -> list[str]:
    """What differs between two versions of a file, as the lines of a unified diff.

    Those of a notebook are the rows of its code cells; a comment tells where each cell begins.
    """
    import difflib

    old, new = (_rows(from_bytes(version, name)) for version in (before, after))
    return list(difflib.unified_diff(old, new, name, name, lineterm=""))


def _rows(source: Source) -> list[str]:
    lines = source.rows
    marks = {cell.first: f"# cell {cell.index + 1}" for cell in source.cells or ()}
    shown: list[str] = []
    for row, text in enumerate(lines, 1):
        shown += [marks[row], text] if row in marks else [text]
    return shown
