"""Making LibCST's nodes with the fields that carry meaning, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import libcst as cst

_Node = TypeVar("_Node", bound="cst.CSTNode")


class UnlikeError(Exception):
    """Something of which only LibCST's own parser makes LibCST's nodes."""


def maker(kind: type[_Node], *fields: str) -> Callable[..., _Node]:
    """What makes nodes of a kind of the values of some of its fields, in their order.

    LibCST's classes check what they are given, and take several times as long.
    """
    new = object.__new__
    setters: list[Callable[[Any, Any], None]] = [getattr(kind, name).__set__ for name in fields]
    if not setters:
        return lambda: new(kind)
    first, *rest = setters
    if not rest:

        def one(value: object) -> _Node:
            node = new(kind)
            first(node, value)
            return node

        return one
    second, *more = rest
    if not more:

        def two(value: object, other: object) -> _Node:
            node = new(kind)
            first(node, value)
            second(node, other)
            return node

        return two

    def many(value: object, other: object, *others: object) -> _Node:
        node = new(kind)
        first(node, value)
        second(node, other)
        for put, item in zip(more, others, strict=True):
            put(node, item)
        return node

    return many
