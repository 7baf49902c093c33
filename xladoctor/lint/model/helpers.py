"""What functions give back; of those that do one thing alone it says all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name, text_of
from xladoctor.lint.model.parts import each_in
from xladoctor.lint.model.syntax import walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model.syntax import Function, Tree


def returned(function: Function) -> Iterator[cst.BaseExpression]:
    """What a function gives back, wherever it does so; a bare ``return`` gives nothing."""
    for part in walk(function.node.body, into_functions=False):
        if isinstance(part, cst.Return) and part.value is not None:
            yield part.value


def listed(tree: Tree, node: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
    """What ``parts = [model, optimizer]`` has in it, where ``*parts`` is handed over."""
    made = tree.assigned_once(node) if isinstance(node, cst.Name) else node
    return [one.value for one in made.elements] if isinstance(made, cst.List | cst.Tuple) else ()


def losses_in(given: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The loss in what a step gives back: ``loss``, ``{"loss": loss}``, ``(loss, outputs)``."""
    if isinstance(given, cst.IfExp):
        yield from losses_in(given.body)
        yield from losses_in(given.orelse)
    elif isinstance(given, cst.Dict):
        pairs = (item for item in given.elements if isinstance(item, cst.DictElement))
        yield from (item.value for item in pairs if text_of(item.key) == "loss")
    else:
        yield next(each_in(given), given)


def only_returned(function: Function) -> cst.BaseExpression | None:
    """What a function returns whose body is nothing else, but for a docstring."""
    node = function.node
    if not isinstance(node, cst.FunctionDef):  # fast for what it mostly is
        return node.body
    if node.asynchronous is not None:
        return None
    found: cst.Return | None = None
    for line in node.body.body:
        # By type and not by isinstance, which LibCST's abstract classes make slow.
        for statement in line.body if type(line) is cst.SimpleStatementLine else [line]:
            if type(statement) is cst.Return and found is None:
                found = statement
            elif not _is_text(statement):
                return None
    return None if found is None else found.value


def calls_of_given(decorator: Function) -> Iterator[cst.Call]:
    """The calls of what a decorator is given: ``f(*args)`` in the function that takes its place."""
    parts = walk(decorator.node)
    definitions = [part for part in parts if isinstance(part, cst.FunctionDef)]
    given = {
        one.params.params[0].name.value
        for one in definitions
        if one.params.params and any(isinstance(x, cst.FunctionDef) for x in one.body.body)
    }
    calls = (part for part in walk(decorator.node) if isinstance(part, cst.Call))
    for call in calls:
        if isinstance(call.func, cst.Name) and call.func.value in given:
            yield call


def gives_back_first(function: Function) -> bool:
    """Whether a function returns nothing but its first parameter, as decorators of registries."""
    names = function.arguments
    if not isinstance(function.node, cst.FunctionDef) or not names:
        return False
    parts = walk(function.node.body, into_functions=False)
    given = [part.value for part in parts if type(part) is cst.Return]
    return bool(given) and all(is_name(value, names[0]) for value in given)


def moved_parameter(function: Function) -> str | None:
    """The parameter that a function moves to a device and gives back, if it does nothing else."""
    made = only_returned(function)
    if not isinstance(made, cst.Call) or not isinstance(made.func, cst.Attribute):
        return None
    moved = made.func.value
    if made.func.attr.value != "to" or not isinstance(moved, cst.Name):
        return None
    return moved.value if moved.value in function.parameters else None


def _is_text(node: cst.CSTNode) -> bool:
    return type(node) is cst.Expr and type(node.value) in {
        cst.SimpleString,
        cst.ConcatenatedString,
    }
