"""Where nodes stand and how they are written, by the nodes of Python's parser they were made of.

For most nodes that anybody asks for, Python's parser says where LibCST's stand. Where it does not
say it surely (what stands in parentheses of its own, what begins or ends with white space or a
comma for LibCST), the answer is None, and LibCST is asked. ``tests/lint/test_converted.py`` holds
both answers to be equal.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import libcst as cst
from libcst.metadata import CodePosition, CodeRange

from xladoctor.lint.model.dotted import dotted_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.lint.model.rows import Rows

#: Kinds that stand where what they were made of stands.
_EQUAL = frozenset(
    [
        cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.BinaryOperation, cst.UnaryOperation,
        cst.BooleanOperation, cst.Comparison, cst.IfExp, cst.Lambda, cst.List, cst.Set, cst.Dict,
        cst.ListComp, cst.SetComp, cst.DictComp, cst.NamedExpr, cst.Await, cst.Yield, cst.Integer,
        cst.Float, cst.Imaginary, cst.SimpleString, cst.ConcatenatedString, cst.FormattedString,
        cst.Ellipsis,
    ]
)  # fmt: skip
_SIMPLE = frozenset(
    [
        cst.Expr, cst.Assign, cst.AugAssign, cst.AnnAssign, cst.Return, cst.Pass, cst.Break,
        cst.Continue, cst.Del, cst.Raise, cst.Assert, cst.Global, cst.Nonlocal, cst.Import,
        cst.ImportFrom,
    ]
)  # fmt: skip
_DEFINITIONS = frozenset([cst.FunctionDef, cst.ClassDef])
_COMPOUND = _DEFINITIONS | {cst.If, cst.For, cst.While, cst.With, cst.Try, cst.TryStar}
_PLACED = _EQUAL | _SIMPLE | _COMPOUND | {cst.ImportAlias}
_BRACKETS = frozenset([cst.List, cst.Set, cst.Dict, cst.Call])
_HEAD = re.compile(r"(?:async[ \t]+)?(?:def|class)[ \t]+")


class Twins:
    """The nodes of a file, by those of Python's parser.

    Args:
        of: Which of them were made of which of Python's.
        rows: What was parsed.
        parents: The node around each node.
    """

    def __init__(
        self,
        of: Mapping[cst.CSTNode, ast.AST],
        rows: Rows,
        parents: Mapping[cst.CSTNode, cst.CSTNode],
    ) -> None:
        self._of = of
        self._rows = rows
        self._parents = parents

    def place(self, node: cst.CSTNode) -> CodeRange | None:
        """Where a node stands (rows from 1, columns from 0, in code points); None if unsure."""
        kind = type(node)
        twin = self._of.get(node)
        if twin is None:
            if kind is cst.SimpleStatementLine:
                return self._of_line(node)
            return self._of_name(node) if kind is cst.Name else None
        if kind in _PLACED:
            return self._range(twin)
        if kind is cst.Arg:
            return self._of_argument(node, twin)
        if kind is cst.Tuple:
            found = self._range(twin)
            start = found.start
            return None if self._rows.lines[start.line - 1][start.column] == "(" else found
        return None

    def text(self, node: cst.CSTNode) -> str | None:
        """A node as it is written, its own parentheses included; None if unsure."""
        kind = type(node)
        twin = self._of.get(node)
        if twin is None:
            return self._text_of_name(node)
        if kind in _EQUAL or kind is cst.Tuple:
            return self._written(node, twin) if self._is_bare(node, twin) else None
        if kind in _SIMPLE and self._ends_line(twin):
            return self._written(node, twin)
        return None

    def _written(self, node: cst.CSTNode, twin: ast.AST) -> str | None:
        """What a node was made of; rows in brackets are not indented with their block then."""
        text = self._rows.text_of(twin)
        if twin.lineno == twin.end_lineno:  # type: ignore[attr-defined]
            return text
        if "\\" in text or '"""' in text or "'''" in text:
            return None  # some of these rows are no such rows
        around: cst.CSTNode | None = node
        while around is not None and not isinstance(self._of.get(around), ast.stmt):
            around = self._parents.get(around)
        if around is None:
            return None
        line = self._rows.lines[self._of[around].lineno - 1]  # type: ignore[attr-defined]
        indent = line[: len(line) - len(line.lstrip())]
        return re.sub(rf"(\r\n|\r|\n){re.escape(indent)}", r"\1", text) if indent else text

    def literal(self, node: cst.CSTNode) -> ast.AST | None:
        """What ``ast.literal_eval`` makes the same of as of a node's text; None if unsure.

        Rows of an expression that stands in the brackets of another one are no expression.
        """
        twin = self._of.get(node)
        if twin is None or (twin.lineno != twin.end_lineno and type(node) not in _BRACKETS):  # type: ignore[attr-defined]
            return None
        return twin

    def _text_of_name(self, node: cst.CSTNode) -> str | None:
        """A name that is no expression, and the dotted one of a module that is imported."""
        if type(node) is cst.Name:
            return node.value
        if type(node) is not cst.Attribute:
            return None
        text = dotted_text(node)
        around = self._parents.get(node)
        while around is not None and around not in self._of:
            around = self._parents.get(around)
        written = around is not None and self._rows.text_of(self._of[around])
        return text if text and written and text in written else None

    def _range(self, twin: ast.AST) -> CodeRange:
        column = self._rows.column
        row, last = twin.lineno, twin.end_lineno  # type: ignore[attr-defined]
        return CodeRange(
            CodePosition(row, column(row, twin.col_offset)),  # type: ignore[attr-defined]
            CodePosition(last, column(last, twin.end_col_offset)),  # type: ignore[attr-defined]
        )

    def _of_line(self, node: cst.CSTNode) -> CodeRange | None:
        body = node.body  # type: ignore[attr-defined]
        first, last = self._of.get(body[0]), self._of.get(body[-1])
        if first is None or last is None:
            return None
        return CodeRange(self._range(first).start, self._range(last).end)

    def _of_name(self, node: cst.CSTNode) -> CodeRange | None:
        """A name that is no expression: by what it is a part of."""
        parent = self._parents.get(node)
        twin = self._of.get(parent) if parent is not None else None
        if parent is None or twin is None:
            return None
        size = len(node.value)  # type: ignore[attr-defined]
        found = self._range(twin)
        if type(parent) is cst.Attribute:
            end = found.end
            return CodeRange(CodePosition(end.line, end.column - size), end)
        start = self._range(twin).start
        if type(parent) in _DEFINITIONS:
            line = self._rows.lines[start.line - 1]
            head = _HEAD.match(line, start.column)
            if head is None or not line.startswith(node.value, head.end()):  # type: ignore[attr-defined]
                return None
            start = CodePosition(start.line, head.end())
        elif type(parent) not in {cst.Arg, cst.Param, cst.ImportAlias}:
            return None
        return CodeRange(start, CodePosition(start.line, start.column + size))

    def _of_argument(self, node: cst.CSTNode, twin: ast.AST) -> CodeRange | None:
        if isinstance(twin, ast.keyword):
            return self._range(twin)
        value: cst.CSTNode = node.value  # type: ignore[attr-defined]
        bare = type(value) in _EQUAL and not isinstance(twin, ast.Starred)
        return self._range(twin) if bare and self._is_bare(value, twin) else None

    # What stands around a node

    def _is_bare(self, node: cst.CSTNode, twin: ast.AST) -> bool:
        """Whether an expression surely stands in no parentheses of its own."""
        if type(twin) is ast.GeneratorExp:
            return False
        found = self._range(twin)
        if self._begins_statement(node, found.start):
            return True
        starts = self._rows.starts
        start = self._before(starts[found.start.line - 1] + found.start.column)
        if start is None:
            return False
        text = self._rows.text
        if start < 0 or text[start] != "(":
            return True
        end = self._behind(starts[found.end.line - 1] + found.end.column)
        if end is None:
            return False
        if end == len(text) or text[end] != ")":
            return True
        if not self._is_only_argument(node):
            return False
        # These are the call's: within its own there would be others.
        outer = self._before(start)
        return outer is not None and (outer < 0 or text[outer] != "(")

    def _begins_statement(self, node: cst.CSTNode, start: CodePosition) -> bool:
        """Whether a node begins where its statement does: its parentheses would come before it."""
        around: cst.CSTNode | None = node
        while around is not None and type(around) not in _SIMPLE:
            around = self._parents.get(around)
        twin = self._of.get(around) if around is not None else None
        return twin is not None and self._range(twin).start == start

    def _is_only_argument(self, node: cst.CSTNode) -> bool:
        argument = self._parents.get(node)
        if type(argument) is not cst.Arg or argument.star or argument.keyword is not None:
            return False
        call = self._parents.get(argument)
        if type(call) is cst.Call:
            return len(call.args) == 1
        return type(call) is cst.ClassDef and len(call.bases) + len(call.keywords) == 1

    def _before(self, place: int) -> int | None:
        """The place of what stands before a place, beyond white space; None if unsure, -1: none."""
        text = self._rows.text
        place -= 1
        while place >= 0 and text[place] in " \t\r\n\f\\":
            if text[place] == "\n":
                start = max(text.rfind("\n", 0, place), text.rfind("\r", 0, place - 1)) + 1
                if "#" in text[start:place]:
                    return None
            place -= 1
        return place

    def _behind(self, place: int) -> int | None:
        """The place of what stands behind a place, beyond white space; None if unsure."""
        text = self._rows.text
        while place < len(text) and text[place] in " \t\r\n\f\\":
            place += 1
        return None if text.startswith("#", place) else place

    def _ends_line(self, twin: ast.AST) -> bool:
        """Whether nothing stands behind a statement in its row, no semicolon and no comment."""
        found = self._range(twin)
        return not self._rows.lines[found.end.line - 1][found.end.column :].strip()
