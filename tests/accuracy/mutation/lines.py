"""The lines of a module, for rewrites of them: in each block, before others, with new names."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.accuracy.mutation.trees import first_after_imports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def each_line(tree: ast.Module, rewrite: Callable[[ast.stmt], Sequence[ast.stmt] | None]) -> int:
    """Let every statement of a block become others; how many have."""
    count = 0
    for block in list(blocks(tree)):
        lines: list[ast.stmt] = []
        for line in block:
            made = rewrite(line)
            lines += [line] if made is None else made
            count += made is not None
        block[:] = lines
    return count


def blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """The statements of all blocks but those of classes."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and not isinstance(node, ast.ClassDef):
                yield block


def numbered(stem: str) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"{stem}_{number}"


def bind(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def put_first(function: ast.FunctionDef, lines: Sequence[ast.stmt]) -> None:
    told = int(is_text(function.body[0]))
    function.body[told:told] = lines


def is_text(line: ast.stmt) -> bool:
    """A docstring, where it is the first line."""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def put_import(tree: ast.Module, line: str) -> None:
    tree.body[first_after_imports(tree) : first_after_imports(tree)] = ast.parse(line).body


def calls_one_of(node: ast.AST, *names: str) -> bool:
    """Whether it is a call of one of Python's functions."""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in names
