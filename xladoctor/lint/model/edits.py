"""Text edits for fixes, computed from positions; everything else in the file stays as it is."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.findings import Edit, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.syntax import Tree

_SIMPLE = cst.SimpleStatementLine


def bounds(tree: Tree, node: cst.CSTNode) -> tuple[Position, Position]:
    """Start and exclusive end of a node, 1-based; a compound statement counts without its body."""
    found = tree.range(node)
    start = Position(found.start.line, found.start.column + 1)
    end = Position(found.end.line, found.end.column + 1)
    if isinstance(node, cst.For | cst.While | cst.If | cst.With | cst.FunctionDef | cst.ClassDef):
        head = {
            cst.For: "iter",
            cst.While: "test",
            cst.If: "test",
            cst.FunctionDef: "name",
            cst.ClassDef: "name",
        }.get(type(node))
        last = getattr(node, head) if head else node.items[-1]  # type: ignore[union-attr]
        until = tree.range(last)
        end = Position(until.end.line, until.end.column + 1)
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            # The position of a definition begins at its decorators; its name is what we mean.
            start = Position(until.start.line, until.start.column + 1)
    elif isinstance(node, cst.ExceptHandler):
        end = Position(start.row, start.column + len("except"))
        if node.type is not None:
            until = tree.range(node.type)
            end = Position(until.end.line, until.end.column + 1)
    return start, end


def replace(tree: Tree, node: cst.CSTNode, content: str) -> Edit:
    """Write ``content`` where ``node`` stands (parentheses around it stay)."""
    found = tree.range(node)
    return Edit(
        content,
        Position(found.start.line, found.start.column + 1),
        Position(found.end.line, found.end.column + 1),
    )


def remove_argument(
    tree: Tree, text: str, call: cst.Call, value: cst.BaseExpression
) -> Edit | None:
    """Remove one argument with the comma that goes with it."""
    index = next((i for i, arg in enumerate(call.args) if arg.value is value), None)
    if index is None:
        return None
    own = tree.range(call.args[index])
    if index + 1 < len(call.args):
        following = tree.range(call.args[index + 1])
        start, end = own.start, following.start
    elif index > 0:
        start, end = tree.range(call.args[index - 1]).end, own.end
    else:
        start, end = own.start, own.end
    if "#" in _between(text, start.line, start.column, end.line, end.column):
        return None  # a comment would be lost
    return Edit("", Position(start.line, start.column + 1), Position(end.line, end.column + 1))


@functools.lru_cache(maxsize=8)
def lines_of(text: str) -> Sequence[str]:
    """The lines of a source as Python counts them: a form feed ends none."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]


def add_argument(tree: Tree, text: str, call: cst.Call, content: str) -> Edit | None:
    """Append an argument after the last one."""
    if not call.args:
        end = tree.range(call).end
        lines = lines_of(text)
        if not lines[end.line - 1][: end.column].endswith("()"):
            return None
        place = Position(end.line, end.column)
        return Edit(content, place, place)
    last = call.args[-1]
    if last.star == "**" or isinstance(last.value, cst.GeneratorExp):
        return None
    found = tree.range(last)
    place = Position(found.end.line, found.end.column + 1)
    lines = lines_of(text)
    before = lines[found.start.line - 1][: found.start.column]
    if before.strip() or "#" in lines[found.end.line - 1][found.end.column :]:
        return Edit(f", {content}", place, place)
    return Edit(f",\n{before}{content}", place, place)  # each on a line of its own


def remove_statement(tree: Tree, text: str, node: cst.CSTNode) -> Edit | None:
    """Remove a simple statement with its line; ``pass`` if the block would be empty."""
    line = node
    while not isinstance(line, _SIMPLE):
        parent = tree.parents.get(line)
        if parent is None:
            return None
        line = parent
    if len(line.body) != 1:
        return None
    found = tree.range(line)
    block = tree.parents.get(line)
    body = getattr(block, "body", ())
    own = Position(found.start.line, found.start.column + 1)
    if len(body) == 1 and not isinstance(block, cst.Module):
        return Edit("pass", own, Position(found.end.line, found.end.column + 1))
    lines = lines_of(text)
    if "#" in lines[found.end.line - 1][found.end.column :]:
        return None
    if found.end.line >= len(lines):
        before = found.start.line - 1
        if not before:
            return None
        return Edit(
            "",
            Position(before, len(lines[before - 1]) + 1),
            Position(found.end.line, len(lines[found.end.line - 1]) + 1),
        )
    return Edit("", Position(found.start.line, 1), Position(found.end.line + 1, 1))


def insert_before(tree: Tree, text: str, node: cst.CSTNode, statement: str) -> Edit | None:
    """Insert a statement on a line of its own before the statement that holds ``node``."""
    found = tree.statement(node)
    if found is None:
        return None
    start = tree.range(found.node).start
    indent = lines_of(text)[start.line - 1][: start.column]
    if indent.strip():
        return None
    place = Position(start.line, 1)
    return Edit(f"{indent}{statement}\n", place, place)


def add_import(tree: Tree, text: str, statement: str) -> Edit | None:
    """Insert an import behind the first block of imports (or the docstring), else at the top."""
    last: cst.CSTNode | None = None
    for index, item in enumerate(tree.module.body):
        if isinstance(item, _SIMPLE) and all(
            isinstance(part, cst.Import | cst.ImportFrom) for part in item.body
        ):
            if any(tree.text(part).strip() == statement for part in item.body):
                return None
            last = item
        elif index == 0 and isinstance(item, _SIMPLE) and _is_text(item):
            last = item
        elif last is not None and not _is_text(last):
            break
    if last is not None:
        # At the end of its own line: the next line may belong to another cell of a notebook.
        row = tree.range(last).end.line
        place = Position(row, len(lines_of(text)[row - 1]) + 1)
        return Edit(f"\n{statement}", place, place)
    if not tree.module.body:
        return None
    place = Position(tree.range(tree.module.body[0]).start.line, 1)
    return Edit(f"{statement}\n", place, place)


def _is_text(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, _SIMPLE)
        and isinstance(node.body[0], cst.Expr)
        and isinstance(node.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )


def _between(text: str, row: int, column: int, end_row: int, end_column: int) -> str:
    lines = lines_of(text)[row - 1 : end_row]
    if row == end_row:
        return lines[0][column:end_column]
    return "\n".join([lines[0][column:], *lines[1:-1], lines[-1][:end_column]])
