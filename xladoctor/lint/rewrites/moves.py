"""Moving statements: out of a condition, or under one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.findings import Edit, Position

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel, Function, Loop

_LINE = cst.SimpleStatementLine


def line_of(model: FileModel, node: cst.CSTNode) -> cst.SimpleStatementLine | None:
    """The line that holds a node in its only statement, and no part of another statement."""
    found: cst.CSTNode | None = node
    while found is not None and not isinstance(found, cst.BaseCompoundStatement):
        if isinstance(found, _LINE):
            return found if len(found.body) == 1 else None
        found = model.parent(found)
    return None


def statement_in(
    model: FileModel, node: cst.CSTNode, loop: Loop
) -> tuple[cst.BaseSmallStatement, cst.For] | None:
    """The statement that a node is part of and the ``for`` loop, if no other loop is between them.

    None for a ``while`` and for a loop with ``else``, behind which it is not known how it ended.
    """
    line, around, outer = line_of(model, node), model.loop(node), loop.node
    if line is None or around is None or around.node is not outer:
        return None
    if not isinstance(outer, cst.For) or outer.orelse is not None:
        return None
    return line.body[0], outer


def out_of_condition(model: FileModel, node: cst.CSTNode, condition: cst.CSTNode) -> list[Edit]:
    """Move the statement that a node is, first or last in an ``if`` block, before or behind it.

    Empty if that is not possible: the statements around it may be needed for it, or need it.
    """
    line = line_of(model, node)
    if line is None or not isinstance(condition, cst.If) or not _plain(model, condition):
        return []
    body = condition.body.body
    if model.parent(line) is not condition.body:
        return []
    found, outer = model.tree.range(line), model.tree.range(condition)
    lines = model.lines
    if outer.end.line >= len(lines):
        return []
    indent = lines[outer.start.line - 1][: outer.start.column]
    # The comment behind the statement goes with it.
    first, rest = lines[found.start.line - 1], lines[found.start.line : found.end.line]
    moved = "".join(f"{row}\n" for row in (indent + first[found.start.column :], *rest))
    here = Position(found.start.line, 1)
    behind = Position(found.end.line + 1, 1)
    before = Position(outer.start.line, 1)
    if len(body) == 1:
        between = lines[outer.start.line - 1 : found.start.line - 1]
        return [] if any("#" in row for row in between) else [Edit(moved, before, behind)]
    if line is body[0]:
        return [Edit(moved, before, before), Edit("", here, behind)]
    if line is body[-1] and isinstance(line.body[0], cst.Expr):
        return [Edit(moved, here, behind)]
    return []


def under_condition(model: FileModel, node: cst.CSTNode, condition: str) -> Edit | None:
    """Put the one-line statement that a node is under ``if condition:``."""
    line = line_of(model, node)
    if line is None:
        return None
    found = model.tree.range(line)
    indent = model.lines[found.start.line - 1][: found.start.column]
    if indent.strip() or found.start.line != found.end.line:
        return None
    step = "\t" if indent.startswith("\t") else "    "
    place = Position(found.start.line, found.start.column + 1)
    return Edit(f"if {condition}:\n{indent}{step}", place, place)


def insert_behind(model: FileModel, line: cst.CSTNode, statement: str) -> Edit | None:
    """Insert a statement on a line of its own behind a line (or a whole block)."""
    found = model.tree.range(line)
    lines = model.lines
    indent = lines[found.start.line - 1][: found.start.column]
    last = found.end.line
    if isinstance(line, cst.BaseCompoundStatement):
        body = line.body
        if not isinstance(body, cst.IndentedBlock):
            return None
        last = model.tree.range(body.body[-1]).end.line
    if indent.strip():
        return None
    # At the end of its own line: the next line may belong to another cell of a notebook.
    place = Position(last, len(lines[last - 1]) + 1)
    return Edit(f"\n{indent}{statement}", place, place)


def remove_definition(model: FileModel, function: Function) -> Edit | None:
    """Remove a function or method with the empty lines before it; None if it is its block's all."""
    node = function.node
    block = model.parent(node)
    body = getattr(block, "body", ())
    if not isinstance(node, cst.FunctionDef) or len(body) < 2 or node.decorators:
        return None
    if not isinstance(node.body, cst.IndentedBlock):
        return None
    lines = model.lines
    first = model.tree.range(node).start.line
    last = model.tree.range(node.body.body[-1]).end.line
    while first > 1 and not lines[first - 2].strip():
        first -= 1
    if last >= len(lines):
        return None
    return Edit("", Position(first, 1), Position(last + 1, 1))


def _plain(model: FileModel, condition: cst.If) -> bool:
    """An ``if`` with a block of its own and nothing else: no ``else``, ``elif`` or one-liner."""
    return (
        condition.orelse is None
        and isinstance(condition.body, cst.IndentedBlock)
        and isinstance(model.parent(condition), cst.IndentedBlock | cst.Module)
    )


def indent_of(model: FileModel, line: cst.CSTNode) -> str:
    """What stands before a statement in its line."""
    start = model.tree.range(line).start
    return model.lines[start.line - 1][: start.column]
