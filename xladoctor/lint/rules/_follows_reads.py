"""Data of a turn that follows from what the loop has read of the device in the turn before.

The board after the move that the model chose, the text with the token that it gave: nobody can make
that before the turn, in a Dataset or in the background.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model import LoopKind, walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.model.taken import targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop


class _Line(NamedTuple):
    """What a line of a loop changes.

    Attributes:
        changed: The names, and attributes of ``self``.
        given: What they get, or what is put into them.
        anew: Whether they hold nothing of what they were.
    """

    changed: frozenset[str]
    given: cst.CSTNode
    anew: bool


def follows_reads(model: FileModel, loop: Loop, move: CallSite) -> bool:
    """Whether what an evaluation loop uploads is made of what its last turn has read.

    Not of training: what an agent learns from is kept, and may be of any turn.
    """
    if loop.kind is not LoopKind.EVAL or not isinstance(loop.node, cst.For | cst.While):
        return False
    if loop.node.body not in model.tree.ancestors(move.node):
        return False
    fetched = {*names_bound(loop.node.target)} if isinstance(loop.node, cst.For) else set()
    lines = [*_lines(loop.node.body)]
    anew = fetched.union(*(line.changed for line in lines if line.anew))
    # What each turn fetches anew takes nothing to the next one, whatever is put into it.
    lines = [line for line in lines if line.anew or anew.isdisjoint(line.changed)]
    used = _used(move.node)
    while more := {x for line in lines if line.changed & used for x in _used(line.given)} - used:
        used |= more
    read = {
        name
        for line in lines
        if any(model.effects.is_read(part) for part in walk(line.given))
        for name in line.changed
    }
    while more := {x for line in lines if _used(line.given) & read for x in line.changed} - read:
        read |= more
    return any(_is_carried(lines, name) for name in (used & read) - fetched)


def _is_carried(lines: list[_Line], name: str) -> bool:
    """Whether a turn takes what the turn before has left in a name: it is used, then set."""
    for line in lines:
        if name in _used(line.given):
            return True
        if line.anew and name in line.changed:
            return False
    return True


def _lines(body: cst.CSTNode) -> Iterator[_Line]:
    """``a = f(b)``, ``a[i] = b``, ``a.x = b``; and ``a.push(b)``, which may change ``a``."""
    for line in walk(body, into_functions=False):
        if isinstance(line, cst.Assign | cst.AugAssign | cst.AnnAssign) and line.value is not None:
            for target in targets(line):
                whole = isinstance(line, cst.Assign) and not isinstance(target, cst.Subscript)
                yield _Line(frozenset(_set(target)), line.value, whole)
        elif isinstance(line, cst.Expr) and isinstance(line.value, cst.Call):
            func = line.value.func
            if isinstance(func, cst.Attribute):
                for argument in line.value.args:
                    yield _Line(frozenset(_set(func.value)), argument.value, anew=False)


def _set(node: cst.BaseExpression) -> Iterator[str]:
    if isinstance(node, cst.Tuple | cst.List):
        for one in node.elements:
            yield from _set(one.value)
        return
    while isinstance(node, cst.Subscript):
        node = node.value
    if (key := _key(node)) is not None:
        yield key


def _key(node: cst.CSTNode) -> str | None:
    """A name, or an attribute of ``self`` by both names."""
    text = dotted_text(node) if isinstance(node, cst.BaseExpression) else None
    if text is None:
        return None
    return ".".join(text.split(".")[: 2 if text.startswith("self.") else 1])


def _used(node: cst.CSTNode) -> set[str]:
    """The names that an expression takes, and the attributes of ``self``."""
    return {key for part in walk(node) if (key := _key(part)) is not None} - {"self"}
