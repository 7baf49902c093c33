"""Whether a function of the program fits the arguments that torch_xla calls it with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules._exact import assigned

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel, Function


def misfit(
    model: FileModel,
    target: cst.BaseExpression,
    function: Function,
    given: cst.BaseExpression | None,
    first: int,
) -> str | None:
    """What is wrong with the number of arguments; None if it is right or not known.

    Args:
        model: The file of the call.
        target: What is called, as written there.
        function: The function that this is.
        given: The ``args`` that the call hands on.
        first: How many arguments come before them.
    """
    items = _items(model, given) if given is not None else 0
    if items is None or function.decorators or not _is_it(model, target, function):
        return None
    parameters = function.node.params
    plain = (*parameters.posonly_params, *parameters.params)
    needed = sum(item.default is None for item in plain)
    named = [item.name.value for item in parameters.kwonly_params if item.default is None]
    if named:
        return f"needs {named[0]} by its name, which nothing gives"
    total = first + items
    any_number = takes_any(function)
    if needed <= total and (total <= len(plain) or any_number):
        return None
    limit = needed if total < needed else len(plain)
    least = "at least " if total < needed < len(plain) or any_number else ""
    least = "at most " if total > len(plain) > needed else least
    things = "argument" if limit == 1 else "arguments"
    return f"takes {least}{limit} {things}, and is called with {total}"


def items_of(model: FileModel, given: cst.BaseExpression | None) -> int:
    """How many arguments ``args`` holds as written."""
    return (_items(model, given) if given is not None else 0) or 0


def _items(model: FileModel, given: cst.BaseExpression) -> int | None:
    """How many arguments ``args`` holds, None if that is not written down."""
    if isinstance(given, cst.Name):
        values = assigned(model, given)
        given = values[0] if len(values) == 1 else given
    if not isinstance(given, cst.Tuple | cst.List):
        return None
    whole = not any(isinstance(item, cst.StarredElement) for item in given.elements)
    return len(given.elements) if whole else None


def _is_it(model: FileModel, target: cst.BaseExpression, function: Function) -> bool:
    """Whether the name means this function and nothing else: not ``f = partial(f, config)``."""
    if isinstance(target, cst.Lambda):
        return target is function.node
    if not isinstance(target, cst.Name):
        return False
    bindings = model.bindings(target.value, target)
    # What is imported is looked up where it is defined.
    return len(bindings) == 1 and (
        bindings[0].node is function.node or bindings[0].kind == "import"
    )


def takes_any(function: Function) -> bool:
    """Whether a function takes any number of arguments."""
    return isinstance(function.node.params.star_arg, cst.Param)
