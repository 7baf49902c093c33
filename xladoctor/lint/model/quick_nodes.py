"""LibCST's nodes, made with less work: a third of the time of linting is that of making them.

LibCST's parser is compiled, and makes each node by calling its class with all of its fields. The
classes are frozen, so that each field is set through ``object.__setattr__``; each checks what the
parser has just read; and three of five nodes are white space and punctuation, nearly all alike. So
what the parser made is not checked again, the most frequent kinds set their fields as any object
does, and white space that is alike is one node (nothing here asks for its place). The trees are the
same, and write the same text: ``tests/lint/test_quick_nodes.py`` holds both to be equal.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_Kind = type[cst.CSTNode]

#: Seven of eight nodes that are no white space are of these kinds.
_FREQUENT: tuple[_Kind, ...] = (
    cst.Name, cst.Attribute, cst.Arg, cst.Call, cst.SimpleStatementLine, cst.Element, cst.Assign,
    cst.AssignTarget, cst.SimpleString, cst.Integer, cst.ParenthesizedWhitespace, cst.Expr,
    cst.IndentedBlock, cst.Subscript, cst.SubscriptElement, cst.Index, cst.Param,
)  # fmt: skip
#: White space and punctuation that hold nothing but white space.
_ALIKE: tuple[_Kind, ...] = (
    cst.SimpleWhitespace, cst.Newline, cst.TrailingWhitespace, cst.EmptyLine, cst.Dot, cst.Comma,
    cst.AssignEqual,
)  # fmt: skip
#: How many different ones of a kind are remembered; comments are never alike.
_MOST_ALIKE = 1024


def _kinds() -> Iterator[_Kind]:
    waiting: list[_Kind] = [cst.CSTNode]  # type: ignore[type-abstract]
    while waiting:
        kind = waiting.pop()
        yield kind
        waiting.extend(kind.__subclasses__())


def _hash_in_c() -> None:
    """Let nodes be hashed by identity as LibCST does it, but not in Python.

    Nodes are the keys of nearly all that is known of them: a large file asks for millions.
    """
    own = cst.CSTNode.__hash__
    for kind in _kinds():
        if kind.__hash__ is own:
            kind.__hash__ = object.__hash__  # type: ignore[method-assign]


def _unchecked(self: cst.CSTNode) -> None:
    """Take a node as the parser made it."""


def _thawed(kind: _Kind) -> None:
    """Let fields be set as those of any object."""
    for one in kind.__mro__:
        for name in ("__setattr__", "__delattr__"):
            if one is not object and name in vars(one):
                delattr(one, name)


def _plain_init(kind: _Kind) -> Callable[..., None]:
    """What a data class that is not frozen would have."""
    known: dict[str, Any] = {}
    parameters, lines = ["self"], ["    pass"]
    for field in dataclasses.fields(kind):
        name, parameter, value = field.name, field.name, field.name
        if field.default is not dataclasses.MISSING:
            known[f"_of_{name}"] = field.default
            parameter = f"{name}=_of_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            known[f"_of_{name}"] = field.default_factory
            parameter = f"{name}=_missing"
            value = f"_of_{name}() if {name} is _missing else {name}"
        parameters.append(parameter)
        lines.append(f"    self.{name} = {value}")
    known["_missing"] = dataclasses.MISSING
    text = "\n".join([f"def __init__({', '.join(parameters)}):", *lines])
    exec(text, known)  # noqa: S102  (names of fields alone, as dataclasses does it)
    made: Callable[..., None] = known["__init__"]
    return made


def _make_quick() -> None:
    _hash_in_c()
    cst.CSTNode.__post_init__ = _unchecked  # type: ignore[method-assign]
    for kind in _FREQUENT:
        init = _plain_init(kind)
        _thawed(kind)
        kind.__init__ = init  # type: ignore[method-assign]


_make_quick()
_own: Mapping[str, _Kind] = {kind.__name__: kind for kind in _ALIKE}
_shared: Mapping[str, Callable[..., Any]] = {
    kind.__name__: functools.lru_cache(_MOST_ALIKE)(kind) for kind in _ALIKE
}


def parse(text: str) -> cst.Module:
    """The syntax tree of a text, in which white space that is alike is one node.

    Raises:
        libcst.ParserSyntaxError: It is not Python.
    """
    # The parser asks the package for its classes, each time.
    vars(cst).update(_shared)
    try:
        return cst.parse_module(text)
    finally:
        vars(cst).update(_own)
