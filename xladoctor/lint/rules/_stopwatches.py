"""Objects and contexts of a program that time what it does: ``with Timer():``, ``timer.tic()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model import Function, walk
from xladoctor.lint.rules._sources import the_call

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from xladoctor.lint.model import CallSite, FileModel

_CONTEXT = "contextlib.contextmanager"


class Timed(NamedTuple):
    """What a stopwatch of the program times somewhere.

    Attributes:
        start: Where it is started.
        calls: What runs until it is stopped, that of reached functions too.
    """

    start: cst.CSTNode
    calls: list[CallSite]


def stopped_by(
    model: FileModel, end: CallSite, start: cst.BaseExpression, clocks: Collection[str]
) -> Iterator[Timed]:
    """What runs between two readings of the clock that stand in two methods, or around a ``yield``.

    Args:
        model: The file.
        end: The later reading, of which the earlier one is subtracted.
        start: What is subtracted.
        clocks: The names of clocks.
    """
    function = end.function
    if function is None:
        return
    if any(model.name(one) == _CONTEXT for one in function.decorators):
        if _goes_out(model, function, end):
            yield from _within(model, {function})
        return
    begins = _started_in(model, function, start, clocks)
    if function.name == "__exit__":
        if {one.name for one in begins} & {"__enter__", "__init__"}:
            yield from _within(model, {function})
        return
    for first in model.calls():
        if first.target not in begins or first.receiver is None:
            continue
        holder = model.tree.text(first.receiver).strip()
        later = (
            call
            for call in model.calls()
            if call.target is function
            and call.function is first.function
            and call.receiver is not None
            and model.tree.text(call.receiver).strip() == holder
            and model.tree.order[call.node] > model.tree.order[first.node]
        )
        last = next(later, None)
        if last is not None and model.loop(last.node) is model.loop(first.node):
            yield Timed(first.node, reached_between(model, first, last))


def _goes_out(model: FileModel, function: Function, end: CallSite) -> bool:
    """Whether a ``yield`` stands before the later reading."""
    order = model.tree.order
    return any(
        isinstance(node, cst.Yield) and order[node] < order[end.node]
        for node in walk(function.node.body, into_functions=False)
    )


def _started_in(
    model: FileModel, function: Function, start: cst.BaseExpression, clocks: Collection[str]
) -> list[Function]:
    """The other methods that set what is subtracted (``self.t0``) to a reading of the clock."""
    return [
        method
        for made in (model.kept_in(start) if isinstance(start, cst.Attribute) else ())
        if isinstance(made, cst.Call) and model.call(made).name in clocks
        if (method := model.function_of(made)) is not None and method is not function
    ]


def _within(model: FileModel, ends: set[Function]) -> Iterator[Timed]:
    """The bodies of ``with`` whose context is the program's function or class with this end."""
    owners = {one.owner for one in ends if one.owner is not None}
    for node in model.nodes(cst.With):
        for item in node.items:
            made = the_call(model, item.item)
            if made is None or made.target not in ends | owners:
                continue
            yield Timed(item.item, _reached(model, model.calls_in(node.body)))


def reached_between(model: FileModel, first: CallSite, last: CallSite) -> list[CallSite]:
    """The calls between two, and those in the functions that they run, also of other files."""
    return _reached(model, model.calls_between(first.node, last.node))


def _reached(model: FileModel, calls: Iterable[CallSite]) -> list[CallSite]:
    return [one for call in calls for one in model.reached(call.node)]
