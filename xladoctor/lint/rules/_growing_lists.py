"""Lists that a loop makes longer and nothing makes shorter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.parts import each_in
from xladoctor.lint.rules._exact import around, same_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Loop

_LONGER = frozenset({"append", "extend"})
_SHORTER = frozenset({"clear", "pop", "popleft", "remove", "insert"})


def loop_of_turns(model: FileModel, node: cst.CSTNode) -> Loop | None:
    """The loop in which ``if step % 100 == 0:`` runs a node: each time of another length.

    What runs once, in the last turn or in one that ends the loop, has the length of them all.
    """
    loop = model.hot_loop(node) if model.is_xla else None
    if loop is None or model.in_step_closure(node):
        return None
    inner = [x for x in model.guards(node) if loop.node in model.tree.ancestors(x.node)]
    parts = (part for guard in inner for part in walk(guard.node))
    ends = any(isinstance(part, cst.Break | cst.Return) for part in parts)
    return None if ends or not any(_asks_for_turn(model, one.test) for one in inner) else loop


def _asks_for_turn(model: FileModel, test: cst.BaseExpression) -> bool:
    """``step % 100``; not ``(step + 1) % len(loader)``."""
    return any(
        isinstance(part, cst.BinaryOperation)
        and isinstance(part.operator, cst.Modulo)
        and not any(
            isinstance(one, cst.Call) and model.name(one.func) == "builtins.len"
            for one in (*walk(part.right), *_made(model, part.right))
        )
        for part in walk(test)
    )


def _made(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.CSTNode]:
    if isinstance(node, cst.Name):
        yield from (part for made in model.assigned_to(node) for part in walk(made))


def grown(
    model: FileModel, kept: cst.Name | cst.Attribute, loop: cst.CSTNode
) -> cst.CSTNode | None:
    """The call in a loop that makes a list longer which nothing in the loop makes shorter."""
    bodies: list[cst.CSTNode] = [loop]
    if isinstance(kept, cst.Name):
        if not any(parent is loop for parent in around(model, kept)):
            return None  # a function that the loop calls has a list of its own
    else:
        ran = {call.function for call in model.reached(loop)} - {model.function_of(loop), None}
        bodies += [one.node.body for one in ran if one is not None]
    found = None
    for part in (part for body in bodies for part in walk(body)):
        if not any(_is_it(target, kept) for target in _changed(part)):
            continue
        if not isinstance(part, cst.Call) or model.call(part).method not in _LONGER:
            return None
        found = part
    return found if _has_no_end(model, kept) else None


def _is_it(target: cst.BaseExpression, kept: cst.Name | cst.Attribute) -> bool:
    """The same name, or the same attribute of whatever object: ``bank.rows = []``."""
    if isinstance(target, cst.Attribute) and isinstance(kept, cst.Attribute):
        return target.attr.value == kept.attr.value
    return same_name(target, kept)


def _changed(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """What a statement or a method call changes: lists, by their names."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        if node.func.attr.value in _LONGER | _SHORTER:
            yield node.func.value
    elif isinstance(node, cst.AssignTarget):
        yield from each_in(node.target)
    elif isinstance(node, cst.AugAssign | cst.AnnAssign):
        yield node.target
    elif isinstance(node, cst.Del):
        yield node.target.value if isinstance(node.target, cst.Subscript) else node.target


def _has_no_end(model: FileModel, kept: cst.Name | cst.Attribute) -> bool:
    """Whether a list is made as one: ``deque(maxlen=100)`` has an end."""
    if isinstance(kept, cst.Name):
        made = [binding.node for binding in model.bindings(kept.value, kept)]
    else:
        made = [*model.kept_in(kept)]
    return bool(made) and all(
        isinstance(one, cst.List) or (isinstance(one, cst.Call) and not one.args) for one in made
    )
