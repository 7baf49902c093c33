"""What names hold behind code that some cores run and others do not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.calls import called_name
from xladoctor.lint.model.dotted import paired, text_of
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.turns import last_of
from xladoctor.lint.model.values import Kind, Value
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.frames import Env
    from xladoctor.lint.model.syntax import Tree

#: Names in a condition that holds where there are several cores.
_SEVERAL = re.compile(
    r"world_?size|cores|nprocs|processes|process_count|replicas|distributed|initialized|\bddp\b",
    re.IGNORECASE,
)
#: What reads a checkpoint, by a word of its name, and the keys of the numbers in one.
_LOADS = frozenset({"load", "loads", "restore", "read"})
_COUNTS = frozenset(
    {
        *("epoch", "epochs", "step", "steps", "iteration", "iterations", "iter", "iters", "turn"),
        *("best", "patience", "wait", "waited", "counter", "loss", "acc", "accuracy", "score"),
        *("metric", "start", "bad"),
    }
)


def alone(test: cst.BaseExpression) -> bool | None:
    """What a condition is where a core has no other: of ``world_size > 1`` False, else None."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        inner = alone(test.expression)
        return None if inner is None else not inner
    if not any(_SEVERAL.search(part.value) for part in walk(test) if isinstance(part, cst.Name)):
        return None
    if isinstance(test, cst.Comparison):
        few = cst.LessThan | cst.LessThanEqual | cst.Equal
        return isinstance(test.comparisons[0].operator, few)
    return False if isinstance(test, cst.Name | cst.Attribute | cst.Call) else None


def returned_by_one_core(test: cst.BaseExpression, body: cst.BaseSuite, env: Env) -> Env:
    """What names hold in ``if world_size < 2: return x``: of no core another value than of it."""
    if len(body.body) != 1 or not isinstance(last_of(body), cst.Return) or alone(test) is not True:
        return env
    return {name: value.but(local=False) if value.local else value for name, value in env.items()}


def behind_return(node: cst.If, env: Env) -> Env:
    """The same behind ``if world_size > 1: return xm.all_reduce("sum", x)``, of what it names."""
    if not isinstance(last_of(node.body), cst.Return) or alone(node.test) is not False:
        return env
    named = {part.value for part in walk(node.body) if isinstance(part, cst.Name)}
    return {
        name: value.but(local=False) if value.local and name in named else value
        for name, value in env.items()
    }


def of_one_core(test: cst.BaseExpression, skipped: Env, done: list[Env]) -> Env:
    """What names hold where ``if world_size > 1: all_reduce(x)`` has not run: a core has no other.

    What all cores agree on behind the branch then differs from no other core's.
    """
    agreed = {
        name
        for env in done
        for name, value in env.items()
        if not value.local and name in skipped and skipped[name].local
    }
    if not agreed or not any(
        _SEVERAL.search(part.value) for part in walk(test) if isinstance(part, cst.Name)
    ):
        return skipped
    return {
        name: value.but(local=False) if name in agreed else value for name, value in skipped.items()
    }


def of_some_cores(value: Value) -> Value:
    """What is set or returned where not all cores come: numbers, and what holds only such."""
    if value.kind is Kind.NUMBER:
        return value.but(local=True)
    if value.kind is not Kind.CONTAINER:
        return value
    inner = value.inner
    if not inner or any(part.kind is not Kind.NUMBER for part in inner):
        return value
    items = value.items and tuple(part.but(local=True) for part in value.items)
    element = value.element and value.element.but(local=True)
    entries = value.entries and tuple((key, part.but(local=True)) for key, part in value.entries)
    return value.but(local=True, items=items, element=element, entries=entries)


def as_tried(handled: Env, tried: Env) -> Env:
    """What names hold behind a handler, where it stands in for what was tried.

    ``try: total = xm.all_reduce("sum", mine)``, ``except: total = mine``: where it cannot be
    reduced there are no other cores.
    """
    return {
        name: value.but(local=False)
        if value.local and (before := tried.get(name)) and not before.local
        else value
        for name, value in handled.items()
    }


def read_of_file(tree: Tree, node: cst.Assign) -> Iterator[cst.BaseExpression]:
    """What ``start, best = state["epoch"], state.get("best", 0)`` gives numbers of a checkpoint.

    Args:
        tree: The syntax of the file or files.
        node: The line.
    """
    for target in node.targets:
        for one, given in paired(target.target, node.value):
            if _is_count(tree, given):
                yield one


def _is_count(tree: Tree, node: cst.BaseExpression) -> bool:
    """``state["epoch"] + 1``, ``int(state["epoch"])`` of ``state = torch.load(path)``."""
    if isinstance(node, cst.BinaryOperation):
        return _is_count(tree, node.left)
    key: str | None = None
    if isinstance(node, cst.Subscript):
        index = index_of(node)
        key, node = text_of(index), node.value
    elif isinstance(node, cst.Call) and node.args:
        if called_name(node) in {"int", "float"}:
            return _is_count(tree, node.args[0].value)
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "get":
            key, node = text_of(node.args[0].value), node.func.value
    if key is None or not words(key) & _COUNTS:
        return False
    while isinstance(node, cst.Subscript):
        node = node.value
    made = tree.assigned_once(node) if isinstance(node, cst.Name) else None
    return isinstance(made, cst.Call) and bool(words(called_name(made)) & _LOADS)
