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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Statements = list[ast.stmt]


class Positions:
    """Where the nodes of a module stand.

    Args:
        module: The module.
        text: What it was parsed from.
        parents: The node around each node of it.
    """

    def __init__(
        self, module: cst.Module, text: str, parents: Mapping[cst.CSTNode, cst.CSTNode]
    ) -> None:
        self._module = module
        self._text = text
        self._parents = parents
        self._found: dict[cst.CSTNode, CodeRange] = {}
        self._twins: dict[cst.CSTNode, Mapping[cst.CSTNode, ast.stmt]] = {}
        self._written: set[cst.CSTNode] = set()

    def of(self, node: cst.CSTNode) -> CodeRange:
        """Where a node stands (rows from 1, columns from 0, in code points)."""
        if node not in self._found:
            try:
                self._write(node)
            except _DifferError:
                self._found.update(_Provider().of(self._module))
        return self._found[node]

    def _write(self, node: cst.CSTNode) -> None:
        """Find the places of everything in the innermost statement that holds a node."""
        statement, block = self._statement(node)
        if statement in self._written:
            raise _DifferError
        self._written.add(statement)
        row = self._twin(statement, block).lineno
        found = _Provider().of_statement(statement, self._module, self._indents(block))
        down = row - found[statement].start.line
        for part, place in found.items():
            start, end = place.start, place.end
            self._found[part] = CodeRange(
                CodePosition(start.line + down, start.column),
                CodePosition(end.line + down, end.column),
            )

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
