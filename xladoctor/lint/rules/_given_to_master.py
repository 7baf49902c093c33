"""What only the master is given, and what a condition on it lets only the master do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.conditions import asked_for_none
from xladoctor.lint.rules._exact import assigned

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel, Function, Guard

_DEPTH = 3
_NOTHING = (None, False, "")


def given_to_master(model: FileModel, node: cst.CSTNode, depth: int = _DEPTH) -> bool:
    """``if project: wandb.init(project)`` of what is given ``name if is_master else None``.

    Args:
        model: The file.
        node: Any node.
        depth: Through how many calls to look.
    """
    function = model.function_of(node)
    if function is None:
        return False
    if any(_asks_what_master_has(model, guard, function) for guard in model.guards(node)):
        return True
    callers = model.callers(function) if depth else ()
    return bool(callers) and all(given_to_master(model, x.node, depth - 1) for x in callers)


def _asks_what_master_has(model: FileModel, guard: Guard, function: Function) -> bool:
    """Whether a condition asks for a parameter that callers fill on the master alone."""
    name = _asked(guard)
    if name is None or name not in function.parameters + function.keyword_only:
        return False
    given = [call.given_to(function, name) for call in model.callers(function)]
    filled = [one for one in given if one is not None]
    return bool(filled) and all(_of_master(model, one) for one in filled)


def _asked(guard: Guard) -> str | None:
    """The name of which a condition asks whether there is one: ``if x``, ``if x is not None``."""
    asked = asked_for_none(guard.test)
    test, when = (guard.test, True) if asked is None else (asked[0], not asked[1])
    return test.value if when is guard.when and isinstance(test, cst.Name) else None


def _of_master(model: FileModel, node: cst.BaseExpression) -> bool:
    """``name if is_master() else None``, also by a name that is bound to it."""
    if isinstance(node, cst.Name):
        made = assigned(model, node)
        return bool(made) and all(
            isinstance(one, cst.IfExp) and _of_master(model, one) for one in made
        )
    if not isinstance(node, cst.IfExp) or model.literal(node.orelse) not in _NOTHING:
        return False
    return any(
        isinstance(part, cst.BaseExpression) and model.value(part).kind is Kind.IS_MASTER
        for part in walk(node.test)
    )
