"""What a loop goes over where that is an object of the program's own: its ``__iter__``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.contained import container
from xladoctor.lint.model.values import UNKNOWN, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Function, Tree
    from xladoctor.lint.model.values import Value

#: An iterator that gives back another one, and so on.
_DEEPEST = 3


def iterated(flow: Flow, node: cst.BaseExpression, value: Value, depth: int = _DEEPEST) -> Value:
    """What is gone over: for an object with an ``__iter__`` of its own, what that yields.

    Args:
        flow: The run of the program.
        node: What the loop, or ``enumerate``, is given.
        value: What it holds.
        depth: How many iterators of iterators are entered.
    """
    instance = value.instance
    if value.kind is not Kind.OBJECT or instance is None or not depth:
        return value
    method = flow.classes.method(instance.cls, "__iter__")
    if method is None:
        return value
    given = flow.iterate(node, method, instance)
    if is_generator(flow.tree, method):
        return given if given.kind is Kind.CONTAINER else value
    of = given.instance  # ``return self``, and its ``__next__``
    follow = flow.classes.method(of.cls, "__next__") if of is not None else None
    if of is not None and follow is not None:
        element = flow.iterate(node, follow, of)
        return value if element == UNKNOWN else container(element)
    # ``return iter(self.loader)``
    return value if given.kind is Kind.UNKNOWN else iterated(flow, node, given, depth - 1)


def is_generator(tree: Tree, function: Function) -> bool:
    """Whether a function yields."""
    return any(tree.function_of(node) is function for node in tree.by_type.get(cst.Yield, ()))


def is_next(names: Names | LinkedNames, node: cst.CSTNode) -> bool:
    """``next(batches)``."""
    return isinstance(node, cst.Call) and names.resolve(node.func) == "builtins.next"


def held_as(flow: Flow, made: cst.BaseExpression, depth: int = _DEEPEST) -> Iterator[cst.CSTNode]:
    """Where a generator stands that a call makes: the call, and names that it is bound to.

    Also in functions that call the one which returns it.
    """
    yield made
    line = flow.tree.parents.get(made)
    function = flow.tree.function_of(made)
    if isinstance(line, cst.Return) and function is not None and depth:
        for call in flow.callers(function):
            yield from held_as(flow, call, depth - 1)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    if isinstance(target, cst.Name):
        for name in flow.tree.by_type.get(cst.Name, ()):
            if (
                isinstance(name, cst.Name)
                and name.value == target.value
                and name is not target
                and any(item.node is made for item in flow.tree.bindings(name))
            ):
                yield name
