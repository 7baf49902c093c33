"""Whether the turns of a loop are graphs of their own, or parts of one that is run behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.conditions import compared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop


def ends_in_turns(model: FileModel, loop: Loop) -> bool:
    """Whether something in a loop ends the graph, or waits for what it gives.

    Without that all turns are recorded as one graph, the same one whenever the loop runs as often.
    """
    if any(_ends(model, call) for call in model.reached(loop.node)):
        return True
    asked = (node.test for node in model.within(loop.node, cst.If))
    goes_on = (node.test for node in model.within(loop.node, cst.While))
    chosen = (node.test for node in model.within(loop.node, cst.IfExp))
    tests = (part for each in (asked, goes_on, chosen) for test in each for part in _parts(test))
    return any(model.value(part).is_device_tensor for part in tests)


def _ends(model: FileModel, call: CallSite) -> bool:
    home = model.file_with(call.node)
    return model.effects.ends_graph(call) or home.effects.is_read(call.node)


def _parts(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """``done.all()`` of ``not done.all() and step < 8``."""
    yield test
    if isinstance(test, cst.BooleanOperation):
        yield from _parts(test.left)
        yield from _parts(test.right)
    elif isinstance(test, cst.UnaryOperation):
        yield from _parts(test.expression)
    elif isinstance(test, cst.Comparison):
        yield from compared(test)
