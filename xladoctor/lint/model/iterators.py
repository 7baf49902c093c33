"""What a loop goes over where that is an object of the program's own: its ``__iter__``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.calls import given
from xladoctor.lint.model.contained import container
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.model.syntax import Class, Function, walk
from xladoctor.lint.model.values import UNKNOWN, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree
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


def hands_on(flow: Flow, node: cst.Yield) -> cst.For | None:
    """The loop of which a generator yields each element as it is: ``for x in rows: yield x``.

    Of ``for n, x in enumerate(rows): yield x`` too, and of what goes over pairs and yields them.
    """
    if not isinstance(node.value, cst.Name | cst.Tuple):
        return None
    yielded = [*names_bound(node.value)]
    for around in flow.tree.ancestors(node):
        if isinstance(around, cst.For):
            bound = [*names_bound(around.target)]
            counted = isinstance(around.target, cst.Tuple) and _counts(flow.names, around.iter)
            if yielded != (bound[1:] if counted else bound):
                continue
            again = {
                name
                for part in walk(around.body, into_functions=False)
                if isinstance(part, cst.AssignTarget | cst.AugAssign | cst.AnnAssign)
                for name in names_bound(part.target)
            }
            return None if again & {*yielded} else around
        if isinstance(around, cst.FunctionDef):
            break
    return None


def handed_on(flow: Flow, call: cst.Call) -> cst.BaseExpression | None:
    """What a generator of the program goes over whose elements it yields as they are.

    ``def batches(): for batch in loader: yield batch``: ``loader`` for ``batches()``, and what the
    call gives if that is a parameter.
    """
    targets = flow.targets(call)
    function = targets[0] if len(targets) == 1 else None
    if not isinstance(function, Function):
        return None
    yields = [
        x for x in flow.tree.by_type.get(cst.Yield, ()) if flow.tree.function_of(x) is function
    ]
    if len(yields) != 1:
        return None
    [node] = yields
    assert isinstance(node, cst.Yield)
    if isinstance(node.value, cst.From):
        over = node.value.item
    else:
        loop = hands_on(flow, node)
        if loop is None:
            return None
        over = loop.iter
    while isinstance(over, cst.Call) and _counts(flow.names, over) and over.args:
        over = over.args[0].value
    if isinstance(over, cst.Name) and over.value in function.parameters:
        return given(call, function.place(over.value), over.value)
    return over


def asked_one_by_one(
    tree: Tree, names: Names | LinkedNames, loop: cst.While
) -> cst.BaseExpression | None:
    """What a ``while`` goes over that takes ``batch = next(turns)`` in each turn.

    ``turns = iter(loader)`` stands before it: ``loader``; also where the loop begins anew with it.
    """
    lines = [*loop.body.body]
    lines += [line for one in lines if isinstance(one, cst.Try) for line in one.body.body]
    for line in lines:
        for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            taken = small.value if isinstance(small, cst.Assign) else None
            if taken is None or not is_next(names, taken):
                continue
            assert isinstance(taken, cst.Call)
            turns = taken.args[0].value if taken.args else None
            for binding in tree.bindings(turns) if isinstance(turns, cst.Name) else ():
                made = binding.node
                if isinstance(made, cst.Call) and made.args and _calls(names, made, "iter"):
                    return made.args[0].value
    return None


def is_manager(names: Names | LinkedNames, function: Function | Class) -> bool:
    """Whether a function yields what ``with function() as x`` binds: ``@contextmanager``."""
    decorators = function.decorators if isinstance(function, Function) else ()
    return any(names.resolve(one) == "contextlib.contextmanager" for one in decorators)


def is_next(names: Names | LinkedNames, node: cst.CSTNode) -> bool:
    """``next(batches)``."""
    return _calls(names, node, "next")


def _counts(names: Names | LinkedNames, node: cst.CSTNode) -> bool:
    """``enumerate(batches)``."""
    return _calls(names, node, "enumerate")


def _calls(names: Names | LinkedNames, node: cst.CSTNode, builtin: str) -> bool:
    return isinstance(node, cst.Call) and names.resolve(node.func) == f"builtins.{builtin}"


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
