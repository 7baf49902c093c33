"""Where nodes stand: LibCST's positions, computed for one statement at a time.

LibCST finds positions by writing a module's code again, which takes 26 to 31 times as long as
Python's own parser needs for it, and a linter asks for the places of a few nodes of a file. So only
the statement that holds a node is written again; its row is that of the same statement in the
tree of Python's parser, and columns begin anew in every row. Where the two trees differ, LibCST is
asked for the whole module. ``tests/lint/test_positions.py`` holds both answers to be equal.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import libcst as cst
from libcst.metadata import CodePosition, CodeRange, PositionProvider
from libcst.metadata.position_provider import PositionProvidingCodegenState

from xladoctor.lint import sources
from xladoctor.lint.model.twins import Twins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xladoctor.lint.model.parsing import Parsed

_Statements = list[ast.stmt]


class Positions:
    """Where the nodes of a module stand.

    Args:
        parsed: The module.
        parents: The node around each node of it.
    """

    def __init__(self, parsed: Parsed, parents: Mapping[cst.CSTNode, cst.CSTNode]) -> None:
        self._parsed = parsed
        self._module = parsed.module
        self._text = parsed.text
        self._parents = parents
        self._of_python = (
            Twins(parsed.twins, parsed.rows, parents) if parsed.rows is not None else None
        )
        self._found: dict[cst.CSTNode, CodeRange] = {}
        self._twins: dict[cst.CSTNode, Mapping[cst.CSTNode, ast.stmt]] = {}
        self._written: set[cst.CSTNode] = set()

    def of(self, node: cst.CSTNode) -> CodeRange:
        """Where a node stands (rows from 1, columns from 0, in code points)."""
        if node not in self._found:
            found = self._of_python.place(node) if self._of_python is not None else None
            if found is not None:
                return found
            if self._write_text(node):
                return self._found[node]
            self._parsed.complete()
            try:
                self._write(node)
            except _DifferError:
                self._found.update(_Provider().of(self._module))
        return self._found[node]

    def _write_text(self, node: cst.CSTNode) -> bool:
        """Find the places of everything in the formatted text that holds a node, if one does.

        Such a text is LibCST's own, white space included, also where Python has parsed the file.
        """
        around: cst.CSTNode | None = node
        place = None
        while around is not None and not isinstance(around, cst.BaseStatement):
            if type(around) in {cst.FormattedString, cst.ConcatenatedString}:
                place = self._of_python.place(around) if self._of_python is not None else None
                if place is not None:
                    break
            around = self._parents.get(around)
        if around is None or place is None or self._parsed.is_whole:
            return False
        found = _Provider().of_statement(around, cst.Module([]), [])
        self._put(found, found[around].start, place.start)
        return node in self._found

    def _put(
        self, found: Mapping[cst.CSTNode, CodeRange], written: CodePosition, really: CodePosition
    ) -> None:
        """Take over places, one of which is known: others in its row stand as far behind it."""
        down = really.line - written.line
        right = really.column - written.column

        def moved(place: CodePosition) -> CodePosition:
            same = place.line == written.line
            return CodePosition(place.line + down, place.column + (right if same else 0))

        for part, place in found.items():
            self._found[part] = CodeRange(moved(place.start), moved(place.end))

    def text(self, node: cst.CSTNode) -> str | None:
        """How an expression or statement is written, if that is known without LibCST."""
        return self._of_python.text(node) if self._of_python is not None else None

    def literal(self, node: cst.CSTNode) -> ast.AST | None:
        """See :meth:`Twins.literal`."""
        return self._of_python.literal(node) if self._of_python is not None else None

    def _write(self, node: cst.CSTNode) -> None:
        """Find the places of everything in the innermost statement that holds a node."""
        statement, block = self._statement(node)
        if statement in self._written:
            raise _DifferError
        self._written.add(statement)
        row = self._twin(statement, block).lineno
        found = _Provider().of_statement(statement, self._module, self._indents(block))
        start = found[statement].start
        self._put(found, start, CodePosition(row, start.column))

    def _statement(self, node: cst.CSTNode) -> tuple[cst.CSTNode, cst.CSTNode]:
        """The innermost statement that fills rows of its own and holds a node, and its block."""
        current = node
        while (parent := self._parents.get(current)) is not None:
            if isinstance(parent, cst.IndentedBlock | cst.Module):
                return current, parent
            current = parent
        raise _DifferError

    def _indents(self, block: cst.CSTNode | None) -> list[str]:
        found: list[str] = []
        while block is not None:
            if isinstance(block, cst.IndentedBlock):
                own = block.indent
                found.append(self._module.default_indent if own is None else own)
            block = self._parents.get(block)
        return found[::-1]

    def _twin(self, statement: cst.CSTNode, block: cst.CSTNode) -> ast.stmt:
        """What Python's parser made of a statement of a block (of its first, for ``a; b``)."""
        if block not in self._twins:
            self._twins[block] = _paired(block, self._statements(block))
        return self._twins[block][statement]

    def _statements(self, block: cst.CSTNode) -> _Statements:
        """What Python's parser made of a block."""
        if isinstance(block, cst.Module):
            tree = sources.parse(self._text)
            if not isinstance(tree, ast.Module):
                raise _DifferError
            return tree.body
        owner = self._parents[block]
        if isinstance(owner, cst.Else):
            return _body(self._owner(self._parents[owner]), "orelse")
        if isinstance(owner, cst.Finally):
            return _body(self._owner(self._parents[owner]), "finalbody")
        if isinstance(owner, cst.ExceptHandler | cst.ExceptStarHandler):
            return _body(self._nth(owner, "handlers"), "body")
        if isinstance(owner, cst.MatchCase):
            return _body(self._nth(owner, "cases"), "body")
        return _body(self._owner(owner), "body")

    def _owner(self, node: cst.CSTNode) -> ast.AST:
        """What Python's parser made of a compound statement, or of an ``elif``."""
        parent = self._parents[node]
        if isinstance(parent, cst.IndentedBlock | cst.Module):
            return self._twin(node, parent)
        if isinstance(node, cst.If) and isinstance(parent, cst.If):
            [found] = _body(self._owner(parent), "orelse")
            return found
        raise _DifferError

    def _nth(self, node: cst.CSTNode, field: str) -> ast.AST:
        """What Python's parser made of one of the handlers or cases of a statement."""
        owner = self._parents[node]
        number = next(i for i, item in enumerate(getattr(owner, field)) if item is node)
        items: Sequence[ast.AST] = getattr(self._owner(owner), field)
        return items[number]


class _DifferError(Exception):
    """Python's parser and LibCST do not see the same statements."""


def _body(owner: ast.AST, field: str) -> _Statements:
    found = getattr(owner, field, None)
    if not isinstance(found, list):
        raise _DifferError
    return found


def _paired(block: cst.CSTNode, found: _Statements) -> Mapping[cst.CSTNode, ast.stmt]:
    assert isinstance(block, cst.IndentedBlock | cst.Module)
    paired: dict[cst.CSTNode, ast.stmt] = {}
    index = 0
    for item in block.body:
        if index >= len(found):
            raise _DifferError
        paired[item] = found[index]
        index += len(item.body) if isinstance(item, cst.SimpleStatementLine) else 1
    if index != len(found):
        raise _DifferError
    return paired


class _Provider(PositionProvider):
    """LibCST's positions without its wrapper, which walks the whole tree once more for nothing."""

    def of(self, module: cst.Module) -> Mapping[cst.CSTNode, CodeRange]:
        """Where each node of a module stands."""
        self._gen_impl(module)
        return self._computed  # type: ignore[return-value]

    def of_statement(
        self, statement: cst.CSTNode, module: cst.Module, indents: list[str]
    ) -> Mapping[cst.CSTNode, CodeRange]:
        """Where each node of a statement stands, as if the file began with its empty lines."""
        state = PositionProvidingCodegenState(
            default_indent=module.default_indent,
            default_newline=module.default_newline,
            provider=self,
            indent_tokens=indents,
        )
        statement._codegen(state)  # noqa: SLF001  (as the provider itself does)
        return self._computed  # type: ignore[return-value]
