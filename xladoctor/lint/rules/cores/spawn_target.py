"""XLA408: what ``spawn`` or ``launch`` is given cannot run on the cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, walk
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.knowledge import WITHOUT_NUMBER
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._arity import items_of, misfit, takes_any
from xladoctor.lint.rules._cores import is_main, starts_anew
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._locked import locked
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_SPAWN = "torch_xla.distributed.xla_multiprocessing.spawn"
_LAUNCH = "torch_xla.launch"
#: First release in which PJRT alone starts the processes.
_PJRT = (2, 1)
#: Names of what may well be a tuple of arguments.
_OF_ARGUMENTS = frozenset({"args", "arguments", "fn_args", "mp_args", "spawn_args", "train_args"})

_TEXTS = cst.SimpleString | cst.FormattedString | cst.ConcatenatedString


@rule("XLA408")
def spawn_target(model: FileModel) -> Iterator[Problem]:
    """Find targets that cannot be pickled, or do not fit, and processes that start themselves."""
    launched = sorted(WITHOUT_NUMBER) if model.is_xla else ()
    for call in model.calls(_SPAWN, _LAUNCH, *launched):
        problem = _of_target(model, call)
        yield from _locks(model, call) if call.name in {_SPAWN, _LAUNCH} else ()
        if problem is not None:
            yield problem
        elif _is_lost(model, call):
            yield model.problem(
                call.keywords.get("start_method", call.node),
                "new processes cannot find the functions of a notebook: AttributeError (Can't get "
                "attribute ... on <module '__main__'>) on every core",
                suggestion='start_method="fork", before anything uses the device',
            )
        elif _comes_again(model, call):
            yield model.problem(
                call.node,
                "each new process reads this file again and comes to this line: RuntimeError, "
                "for it is still starting",
                suggestion='if __name__ == "__main__": around it',
            )


def _locks(model: FileModel, call: CallSite) -> Iterator[Problem]:
    """``xmp.spawn(train, args=(WRAPPED,))``."""
    for one in locked(model, call):
        yield model.problem(
            one.given,
            f"the processes are given a copy of this, and a {one.which} cannot be copied, also "
            f"where they are forked: it holds {one.holds}, and this raises an error",
            suggestion="make it in the function that runs on the cores, or at the top of the file, "
            "where forked processes find it",
            related=[model.place(one.made, "made here")],
        )


def _of_target(model: FileModel, call: CallSite) -> Problem | None:
    """What is wrong with the function that a call gives to the cores."""
    target = call.argument(0, "fn")
    called = _called_at_once(model, target)
    if target is not None and called is not None:
        return model.problem(
            target,
            f"{snippet(model, target)} runs here, in the process that starts the cores, and "
            "they are given what it returns, which is no function: TypeError on every core",
            suggestion=f"give the function and its arguments apart: {called}, args=(...)",
        )
    function = model.value(target).function if target is not None else None
    if target is None or function is None or call.has_star:
        return None
    args = call.argument(1, "args")
    if args is not None and _in_parentheses(model, args):
        one = model.tree.text(args).strip(" ()")
        return model.problem(
            args,
            f"({one}) is no tuple: what {one} itself holds becomes the arguments of "
            f"{snippet(model, target)}, or this raises TypeError",
            suggestion=f"args=({one},)",
        )
    numbered = call.name not in WITHOUT_NUMBER
    if numbered and not function.parameters and not takes_any(function) and _bare(target):
        return model.problem(
            target,
            f"{snippet(model, target)} takes no argument, and is called with the core's "
            "number first: TypeError on every core",
            suggestion="def _mp_fn(index, ...)",
            related=[model.place(function.node, "defined here")],
        )
    wrong = misfit(model, target, function, args, first=1 if numbered else 0)
    if wrong is not None:
        items = items_of(model, args)
        counts = numbered and "name" not in wrong
        by = f": the core's number and {items} from args" if counts else ""
        before = "one parameter for the core's number, then " if numbered else ""
        return model.problem(
            target,
            f"{snippet(model, target)} {wrong}{by}: TypeError on every core",
            suggestion=f"{before}one parameter for each item of args",
            related=[model.place(function.node, "defined here")],
        )
    if numbered and args is not None and _in_first_place(function, args):
        return model.problem(
            target,
            f"the core's number comes first: {snippet(model, target)} takes it for "
            f"{function.parameters[0]}, and {function.parameters[0]} for {function.parameters[1]}",
            suggestion=f"def {function.name}(index, {function.parameters[0]})",
            related=[model.place(function.node, "defined here")],
        )
    if _pickled(model, call) and (function.outer is not None or _is_lambda(function)):
        return model.problem(
            target,
            "a function inside a function (or a lambda) cannot be sent to the processes of "
            "the cores: PicklingError",
            suggestion="define the function at the top of the file",
        )
    return None


def _in_first_place(function: Function, args: cst.BaseExpression) -> bool:
    """``xmp.spawn(main, args=(args,))`` of ``def main(args, rank=None)``."""
    first = args.elements[0].value if isinstance(args, cst.Tuple) and args.elements else None
    names = function.parameters
    return len(names) > 1 and isinstance(first, cst.Name) and first.value == names[0]


def _in_parentheses(model: FileModel, args: cst.BaseExpression) -> bool:
    """``args=(flags)``, where a tuple was meant; not of what is one."""
    argument = model.parent(args)
    written = model.tree.text(argument).partition("=")[2] if argument is not None else ""
    if not isinstance(args, cst.Name | cst.Attribute) or not written.strip().startswith("("):
        return False
    values = assigned(model, args) if isinstance(args, cst.Name) else []
    made = (model.call(one).name for one in values if isinstance(one, cst.Call))
    listed = any(isinstance(one, cst.Tuple | cst.List) for one in values)
    words = args.value if isinstance(args, cst.Name) else args.attr.value
    return (
        not listed
        and not any(name in {"builtins.tuple", "builtins.list"} for name in made)
        and words.lower() not in _OF_ARGUMENTS
    )


def _is_lost(model: FileModel, call: CallSite) -> bool:
    """Whether a notebook starts a function of its own in processes that are not forked.

    Measured on torch_xla 2.9 in a notebook, with ``"spawn"`` and ``"forkserver"``.
    """
    target = call.argument(0, "fn")
    function = model.value(target).function if target is not None else None
    if not model.is_notebook or function is None or not model.is_here(function.node):
        return False
    return starts_anew(model, call)


def _comes_again(model: FileModel, call: CallSite) -> bool:
    """Whether the processes are started by the top of a script, with no ``if __name__`` around.

    Notebooks, and scripts that were one, have no file to read.
    """
    if not starts_anew(model, call) or model.is_notebook or model.shell:
        return False
    if "get_ipython" in model.text:
        return False
    calls = [call] if call.function is None else [*model.callers(call.function)]
    return any(
        one.function is None
        and model.is_here(one.node)
        and not any(is_main(model, guard) for guard in model.guards(one.node))
        for one in calls
    )


def _called_at_once(model: FileModel, target: cst.BaseExpression | None) -> str | None:
    """The name of a function that returns nothing, or a text, in ``xmp.spawn(train(net), ...)``."""
    called = model.call(target) if isinstance(target, cst.Call) else None
    if called is None or not isinstance(called.target, Function):
        return None
    node = called.target.node
    gives = any(not isinstance(one, _TEXTS) for one in returned(called.target))
    gives = gives or isinstance(node, cst.Lambda)
    later = any(isinstance(part, cst.Yield) for part in walk(node, into_functions=False))
    decorated = bool(called.target.decorators)
    return None if gives or later or decorated else called.written


def _is_lambda(function: Function) -> bool:
    return isinstance(function.node, cst.Lambda)


def _bare(target: cst.BaseExpression) -> bool:
    """Not a method or a partial, which bring arguments along."""
    return isinstance(target, cst.Name | cst.Lambda)


def _pickled(model: FileModel, call: CallSite) -> bool:
    """Whether there are processes, forked ones too: an executor pickles what they run.

    Measured on torch_xla 2.9.0. Before PJRT, forked processes inherited it.
    """
    if call.name != _SPAWN or call.has_star:
        return False
    nprocs, method = call.argument(2, "nprocs"), call.argument(5, "start_method")
    if nprocs is not None and model.literal(nprocs) == 1:
        return False
    how = "spawn" if method is None else model.literal(method)
    return how == "spawn" or (how == "fork" and model.target >= _PJRT)
