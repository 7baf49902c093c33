"""Batches that are all that a memory holds, as long as that is less than a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.conditions import compared
from xladoctor.lint.model.dotted import assignments
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._reads import costly_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Loop

    #: The batch, the list that it is taken from, and the condition that asks how long that is.
    _Found = tuple[cst.BaseExpression, cst.BaseExpression, cst.CSTNode | None]

_SAMPLES = ("random.sample",)


def whole_memories(model: FileModel) -> Iterator[tuple[cst.BaseExpression, Loop]]:
    """``random.sample(memory, min(len(memory), 64))``, also with ``if`` and ``else``.

    Args:
        model: The file.

    Yields:
        What gives a batch that may be all of a list that the program makes longer, and the loop
        that makes it. Where something else asks how long the list is, it may wait for a batch.
    """
    for node, memory, asked in (*_shortest(model), *_otherwise(model)):
        loop = costly_loop(model, node)
        if loop is None or not _is_filled(model, memory):
            continue
        if not any(_asks(model, one, memory) for one in _comparisons(model) if one is not asked):
            yield node, loop


def _shortest(model: FileModel) -> Iterator[_Found]:
    """``random.sample(memory, min(len(memory), 64))``, also with the number by a name."""
    for call in model.calls(*_SAMPLES):
        memory, number = call.argument(0, "population"), call.argument(1, "k")
        if isinstance(number, cst.Name):
            number = model.assigned_once(number)
        if memory is None or not isinstance(number, cst.Call):
            continue
        if model.name(number.func) == "builtins.min" and any(
            _is_length(model, argument.value, memory) for argument in number.args
        ):
            yield call.node, memory, None


def _otherwise(model: FileModel) -> Iterator[_Found]:
    """``if len(memory) > 64: batch = random.sample(memory, 64)``, and ``else: batch = memory``."""
    for call in model.calls(*_SAMPLES):
        memory = call.argument(0, "population")
        parent = model.parent(call.node)
        if memory is None or parent is None:
            continue
        if isinstance(parent, cst.IfExp) and _is_all(model, parent.orelse, memory):
            yield parent.orelse, memory, parent.test
        line = model.parent(parent) if isinstance(parent, cst.Assign) else None
        if line is None or not isinstance(parent, cst.Assign):
            continue
        choice = next((one for one in model.tree.ancestors(line) if isinstance(one, cst.If)), None)
        if choice is None or not isinstance(choice.orelse, cst.Else):
            continue
        target = parent.targets[0].target
        for part in walk(choice.orelse.body):
            for bound, value in assignments(part):
                if same_name(bound, target) and _is_all(model, value, memory):
                    yield value, memory, choice.test


def _is_all(model: FileModel, node: cst.BaseExpression, memory: cst.BaseExpression) -> bool:
    """``memory``, ``list(memory)``, ``random.sample(memory, len(memory))``."""
    if same_name(node, memory):
        return True
    if not isinstance(node, cst.Call) or not node.args:
        return False
    first, *rest = (argument.value for argument in node.args)
    if model.name(node.func) in _SAMPLES:
        return same_name(first, memory) and any(_is_length(model, one, memory) for one in rest)
    return model.name(node.func) == "builtins.list" and same_name(first, memory)


def _is_length(model: FileModel, node: cst.BaseExpression, memory: cst.BaseExpression) -> bool:
    """``len(self.memory)``, of any object that keeps it under that name."""
    if not isinstance(node, cst.Call) or model.name(node.func) != "builtins.len" or not node.args:
        return False
    return _is_same(node.args[0].value, memory)


def _is_same(one: cst.BaseExpression | None, memory: cst.BaseExpression) -> bool:
    if isinstance(one, cst.Attribute) and isinstance(memory, cst.Attribute):
        return one.attr.value == memory.attr.value
    return same_name(one, memory)


def _is_filled(model: FileModel, memory: cst.BaseExpression) -> bool:
    """Whether the program puts something into a list, step by step."""
    return any(
        _is_same(call.receiver, memory) and part.hot_loop(call.node) is not None
        for part in (model, *model.linked)
        for call in part.methods("append")
    )


def _comparisons(model: FileModel) -> Iterator[cst.Comparison]:
    for part in (model, *model.linked):
        yield from part.nodes(cst.Comparison)


def _asks(model: FileModel, test: cst.Comparison, memory: cst.BaseExpression) -> bool:
    """Whether a condition asks how long the list is: ``if len(self.memory) < 64: return``."""
    return any(_is_length(model, side, memory) for side in compared(test))
