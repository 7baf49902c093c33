"""Lists that a loop fills which acts in an environment until an episode is done: of any length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, walk
from xladoctor.lint.model.knowledge import JOINS_AND_STACKS
from xladoctor.lint.rules._reads import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Loop

_SHORTER = frozenset({"pop", "popleft"})


def joined_episodes(model: FileModel) -> Iterator[tuple[CallSite, Loop]]:
    """``torch.stack(values)`` behind ``while not done: ...; values.append(value)``.

    Args:
        model: The file.

    Yields:
        The calls that join such a list on the device, each with the loop that fills it.
    """
    joins = [call for call in model.calls(*JOINS_AND_STACKS) if _listed(call) is not None]
    if not joins:
        return
    filled = dict(_filled(model))
    for call in joins if filled else ():
        given = _listed(call)
        assert given is not None
        loop = filled.get(_key(model, given))
        if loop is None or not model.value(call.node).is_device_tensor:
            continue
        if not_here(model, call.node) or any(
            one.node is call.node for one in model.reached(loop.node)
        ):
            continue  # every so many steps of the environment: always as many
        if model.is_here(call.node) and not model.throttled(call.node):
            yield call, loop


def _listed(call: CallSite) -> cst.Name | cst.Attribute | None:
    given = call.argument(0, "tensors")
    return given if isinstance(given, cst.Name | cst.Attribute) else None


def _key(model: FileModel, node: cst.BaseExpression) -> tuple[Function | None, str]:
    """What a list is called: an attribute wherever it is, a name in its function."""
    if isinstance(node, cst.Attribute):
        return None, f".{node.attr.value}"
    return model.function_of(node), model.tree.text(node).strip()


def _filled(model: FileModel) -> Iterator[tuple[tuple[Function | None, str], Loop]]:
    """The lists that an episode fills, and those that are filled by going over one."""
    appends = [
        call
        for call in model.methods("append")
        if isinstance(call.receiver, cst.Name | cst.Attribute)
    ]
    shorter = {_key(model, call.receiver) for call in model.methods(*_SHORTER) if call.receiver}
    found: dict[tuple[Function | None, str], Loop] = {}
    for call in appends:
        assert call.receiver is not None
        key, loop = _key(model, call.receiver), model.hot_loop(call.node)
        if loop is None or key in shorter or model.throttled(call.node):
            continue
        if loop.kind is LoopKind.ROLLOUT and _ends_with_episode(loop):
            found[key] = loop
    yield from found.items()
    for call in appends:
        around = model.loop(call.node)
        if around is None or around.over is None or call.receiver is None:
            continue
        parts = [p for p in walk(around.over) if isinstance(p, cst.Name | cst.Attribute)]
        for part in parts:
            if (key := _key(model, part)) in found:
                yield _key(model, call.receiver), found[key]


def _ends_with_episode(loop: Loop) -> bool:
    """``while not done:``, and loops that ``if done: break`` leaves; not after so many turns."""
    node = loop.node
    if isinstance(node, cst.While) and _asks_flag(node.test):
        return True
    if not isinstance(node, cst.While | cst.For):
        return False
    return any(
        isinstance(part, cst.If)
        and _asks_flag(part.test)
        and any(isinstance(line, cst.Break) for line in walk(part.body, into_functions=False))
        for part in walk(node.body, into_functions=False)
    )


def _asks_flag(test: cst.BaseExpression) -> bool:
    """``done``, ``not done``, ``terminated or truncated``: what no number decides."""
    if isinstance(test, cst.UnaryOperation):
        return isinstance(test.operator, cst.Not) and _asks_flag(test.expression)
    if isinstance(test, cst.BooleanOperation):
        return _asks_flag(test.left) or _asks_flag(test.right)
    return isinstance(test, cst.Name | cst.Attribute | cst.Subscript) and not (
        isinstance(test, cst.Name) and test.value in {"True", "False"}
    )
