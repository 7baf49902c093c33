"""XLA418: the master core evaluates alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, LoopKind, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._beside import over_own_loader
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard, Loop, Problem

#: Words in the names of functions that evaluate a model.
_EVALUATES = frozenset({"eval", "evaluate", "evaluation", "validate", "validation"})
#: Pictures that are shown of a model, rather than batches that it is judged by.
_FEW = 16
#: What draws the next token of a text.
_DRAWS = frozenset({"torch.multinomial", "torch.distributions.Categorical"})


@rule("XLA418")
def master_only_evaluation(model: FileModel) -> Iterator[Problem]:
    """Find evaluation loops that only the master core gets to."""
    if not model.is_xla or model.spmd:
        return
    reported = set()
    for guard, node, what in _evaluations(model):
        if guard.node in reported:
            continue
        reported.add(guard.node)
        yield model.problem(
            guard.written,
            "only the master core evaluates: the others wait at their next collective, and with a "
            "sharded loader the master sees its own part of the data only",
            suggestion="evaluate on all cores and add up the counts with xm.all_reduce or "
            "xm.mesh_reduce",
            related=[model.place(node, what)],
        )


def _evaluations(model: FileModel) -> Iterator[tuple[Guard, cst.CSTNode, str]]:
    """Loops of the program, also where they run on all cores too, and functions of other files.

    Those get the model, and evaluate by their name.
    """
    for loop in model.loops:
        if model.looped_by and not over_own_loader(model, loop):
            continue
        guard = model.master_only(loop.node) if _goes_over_data(model, loop) else None
        if guard is not None:
            yield guard, loop.node, "the evaluation loop"
    if model.looped_by:
        return
    for call in model.calls():
        inside = _evaluates(model, call)
        guard = model.master_only(call.node) if inside is not None else None
        if inside is not None and guard is not None:
            yield guard, inside.node, "the evaluation loop"
        # A method of a trainer or a metric may do anything by such a name.
        of_object = call.name is None and call.method is not None
        if call.target is not None or of_object or not words(call.last) & _EVALUATES:
            continue
        given = [model.value(item) for item in (*call.positional, *call.keywords.values())]
        on_device = any(value.kind is Kind.MODEL and value.on_device for value in given)
        guard = model.master_only(call.node) if on_device else None
        if guard is not None:
            yield guard, call.node, "the evaluation"


def _evaluates(model: FileModel, call: CallSite) -> Loop | None:
    """The evaluation loop in the function of the program that a call runs."""
    if not isinstance(call.target, Function):
        return None
    inside = (
        loop
        for part in (model, *model.linked)
        for loop in part.loops
        if _goes_over_data(model, loop) and loop.function is call.target
    )
    return next(inside, None)


def _goes_over_data(model: FileModel, loop: Loop) -> bool:
    """Whether a loop evaluates batches; one that writes a sample, token by token, has none.

    Nor has one that shows a few of them: ``for i in range(min(6, len(data)))``.
    """
    if loop.kind is not LoopKind.EVAL or loop.implicit or _is_short(model, loop):
        return False
    return not any(
        isinstance(part, cst.Call) and model.name(part.func) in _DRAWS
        for part in walk(loop.node, into_functions=False)
    )


def _is_short(model: FileModel, loop: Loop) -> bool:
    """Whether a loop counts to a small number that is written down, or to less."""
    over = loop.over
    if not isinstance(over, cst.Call) or model.name(over.func) != "builtins.range":
        return False
    end = over.args[-1].value if len(over.args) in {1, 2} else None
    ends = [end] if end is not None else []
    if isinstance(end, cst.Call) and model.name(end.func) == "builtins.min":
        ends = [one.value for one in end.args]
    numbers = (model.literal(one) for one in ends)
    return any(isinstance(number, int) and number <= _FEW for number in numbers)
