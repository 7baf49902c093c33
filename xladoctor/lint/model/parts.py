"""The parts of a node that carry meaning, and walks through them."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import TYPE_CHECKING, Any

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Kinds without parts: half of all nodes.
LEAVES = frozenset([cst.Name, cst.Integer, cst.Float, cst.Imaginary, cst.Pass])
_DEFINITIONS = frozenset([cst.FunctionDef, cst.Lambda, cst.ClassDef])
#: Fields that hold white space and punctuation: nothing in them is of interest.
_TRIVIA = frozenset(
    [
        "lpar",
        "rpar",
        "leading_lines",
        "leading_whitespace",
        "trailing_comma",
        "relative",
        "lines_after_decorators",
        "lines_after_module_docstring",
        "semicolon",
        "comma",
        "header",
        "footer",
        "equal",
        "dot",
        "lbracket",
        "rbracket",
        "lbrace",
        "rbrace",
        "colon",
        "first_colon",
        "second_colon",
        "star",
        "trailing_whitespace",
        "indent",
        "encoding",
        "default_indent",
        "default_newline",
        "has_trailing_newline",
        "posonly_ind",
        "star_kwarg_separator",
        "asynchronous",
    ]
)


def left_out(kind: type[cst.CSTNode]) -> Sequence[str]:
    """The fields of a kind of node that carry no meaning."""
    names = (field.name for field in dataclasses.fields(kind))
    return [name for name in names if name in _TRIVIA or name.startswith("whitespace")]


_NO_NODES = frozenset([type(None), str, bool, int, cst.MaybeSentinel])


@functools.cache
def _parts(kind: type[cst.CSTNode]) -> Callable[[cst.CSTNode], tuple[Any, ...]] | None:
    """What reads the fields of a kind of node that carry meaning; None if it has none."""
    without = left_out(kind)
    names = [
        field.name
        for field in dataclasses.fields(kind)
        if field.name not in without and field.type not in {str, "str"}
    ]
    if not names:
        return None
    read = operator.attrgetter(*names)
    return read if len(names) > 1 else lambda node: (read(node),)


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The parts of a node that carry meaning, about in source order."""
    found: list[cst.CSTNode] = []
    read = _parts(type(node))
    if read is None:
        return found
    for value in read(node):
        # Fields hold nodes, sequences of nodes, texts, None, or LibCST's mark for what is missing.
        kind = type(value)
        if kind is list or kind is tuple:
            found.extend(value)
        elif kind not in _NO_NODES:
            found.append(value)
    return found


def walk(node: cst.CSTNode, *, into_functions: bool = True) -> Iterator[cst.CSTNode]:
    """A node and everything in it, depth first."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        if type(current) in LEAVES:
            continue
        inner = children(current)
        if not into_functions:
            inner = [item for item in inner if type(item) not in _DEFINITIONS]
        inner.reverse()
        waiting.extend(inner)


def literal_parts(value: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """The elements of a list, tuple or dictionary as it is written."""
    if isinstance(value, cst.List | cst.Tuple | cst.Dict):
        yield from (element.value for element in value.elements)


def each_in(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The elements of a tuple or list as it is written; anything else is its only one."""
    if isinstance(node, cst.Tuple | cst.List):
        yield from (element.value for element in node.elements)
    else:
        yield node


def names_bound(target: cst.BaseExpression) -> Iterator[str]:
    """The names that a target binds, those in tuples too; not ``self`` of ``self.turn``."""
    if isinstance(target, cst.Name):
        yield target.value
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from names_bound(element.value)
    elif isinstance(target, cst.StarredElement):
        yield from names_bound(target.value)


def index_of(node: cst.Subscript) -> cst.BaseExpression | None:
    """``key`` of ``x[key]``; None of slices, and where several stand in the brackets."""
    index = node.slice[0].slice if len(node.slice) == 1 else None
    return index.value if isinstance(index, cst.Index) else None


def names_added(made: cst.CSTNode) -> Iterator[cst.Name]:
    """The names in an expression of nothing but sums, products and quotients of names."""
    parts = list(walk(made)) if isinstance(made, cst.BinaryOperation) else []
    if not any(isinstance(part, cst.Call | cst.Subscript | cst.Lambda) for part in parts):
        yield from (part for part in parts if isinstance(part, cst.Name))
