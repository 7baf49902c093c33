"""Whether the turns of a loop are graphs of their own, or parts of one that is run behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules._asked import asks_tensor

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel, Loop


def ends_in_turns(model: FileModel, loop: Loop) -> bool:
    """Whether something in a loop ends the graph, or waits for what it gives.

    Without that all turns are recorded as one graph, the same one whenever the loop runs as often.
    """
    if any(_ends(model, call) for call in model.reached(loop.node)):
        return True
    asked = (one.test for one in model.within(loop.node, cst.If))
    goes_on = (one.test for one in model.within(loop.node, cst.While))
    chosen = (one.test for one in model.within(loop.node, cst.IfExp))
    return any(asks_tensor(model, test) for each in (asked, goes_on, chosen) for test in each)


def _ends(model: FileModel, call: CallSite) -> bool:
    home = model.file_with(call.node)
    return model.effects.ends_graph(call) or home.effects.is_read(call.node)
