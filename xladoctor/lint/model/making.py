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
    names: dict[str, Any] = {"new": object.__new__, "kind": kind}
    names.update((f"set_{name}", getattr(kind, name).__set__) for name in fields)
    lines = [f"def make({', '.join(fields)}):", "    node = new(kind)"]
    lines += [f"    set_{name}(node, {name})" for name in fields]
    exec("\n".join([*lines, "    return node"]), names)  # noqa: S102  (of the names above)
    made: Callable[..., _Node] = names["make"]
    return made
