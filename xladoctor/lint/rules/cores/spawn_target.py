"""XLA408: what ``spawn`` or ``launch`` is given cannot run on the cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Problem

_SPAWN = "torch_xla.distributed.xla_multiprocessing.spawn"
_LAUNCH = "torch_xla.launch"


@rule("XLA408")
def spawn_target(model: FileModel) -> Iterator[Problem]:
    """Find targets that cannot be pickled and targets whose parameters do not fit."""
    for call in model.calls(_SPAWN, _LAUNCH):
        target = call.argument(0, "fn")
        function = model.value(target).function if target is not None else None
        if target is None or function is None or call.has_star:
            continue
        if not function.parameters and not _takes_any(function) and _bare(target):
            yield model.problem(
                target,
                f"{snippet(model, target)} takes no argument, and is called with the core's "
                "number first: TypeError on every core",
                suggestion="def _mp_fn(index, ...)",
                related=[model.place(function.node, "defined here")],
            )
            continue
        wrong = _count(model, call, target, function)
        if wrong is not None:
            yield model.problem(
                target,
                f"{snippet(model, target)} {wrong}: TypeError on every core",
                suggestion="one parameter for the core's number, then one for each item of args",
                related=[model.place(function.node, "defined here")],
            )
        elif _pickled(model, call) and (function.outer is not None or _is_lambda(function)):
            yield model.problem(
                target,
                "a function inside a function (or a lambda) cannot be sent to the processes of "
                "the cores: PicklingError",
                suggestion="define the function at the top of the file",
            )


def _count(
    model: FileModel, call: CallSite, target: cst.BaseExpression, function: Function
) -> str | None:
    """What is wrong with the number of arguments, None if it is right or not known."""
    given = call.argument(1, "args")
    items = _items(model, given) if given is not None else 0
    if items is None or function.decorators or not _is_it(model, target, function):
        return None
    parameters = function.node.params
    plain = (*parameters.posonly_params, *parameters.params)
    needed = sum(item.default is None for item in plain)
    named = [item.name.value for item in parameters.kwonly_params if item.default is None]
    if named:
        return f"needs {named[0]} by its name, which no core gives"
    total = 1 + items
    if total < needed or (total > len(plain) and not _takes_any(function)):
        limit = needed if total < needed else len(plain)
        least = "at least " if total < needed < len(plain) or _takes_any(function) else ""
        least = "at most " if total > len(plain) > needed else least
        things = "argument" if limit == 1 else "arguments"
        return (
            f"takes {least}{limit} {things}, and is called with {total}: the core's number and "
            f"{items} from args"
        )
    return None


def _items(model: FileModel, given: cst.BaseExpression) -> int | None:
    """How many arguments ``args`` holds, None if that is not written down."""
    if isinstance(given, cst.Name):
        values = assigned(model, given)
        given = values[0] if len(values) == 1 else given
    if not isinstance(given, cst.Tuple):
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


def _takes_any(function: Function) -> bool:
    return isinstance(function.node.params.star_arg, cst.Param)


def _is_lambda(function: Function) -> bool:
    return isinstance(function.node, cst.Lambda)


def _bare(target: cst.BaseExpression) -> bool:
    """Not a method or a partial, which bring arguments along."""
    return isinstance(target, cst.Name | cst.Lambda)


def _pickled(model: FileModel, call: CallSite) -> bool:
    """Whether processes are started anew, as they are unless forked."""
    start = call.argument(5 if call.name == _SPAWN else 3, "start_method")
    debug = call.keywords.get("debug_single_process")
    nprocs = call.argument(2, "nprocs") if call.name == _SPAWN else None
    if debug is not None or (nprocs is not None and model.literal(nprocs) == 1):
        return False
    return call.name == _SPAWN and (start is None or model.literal(start) == "spawn")
