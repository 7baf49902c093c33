"""Lists that are as long as the values of a tensor on the device say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.loops import opposed
from xladoctor.lint.model.turns import last_of
from xladoctor.lint.rules._asked import asks_tensor
from xladoctor.lint.rules._read_numbers import made_of
from xladoctor.lint.rules._sources import gone_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: How many lists are made of each other.
_DEPTH = 3
#: What makes a tensor as long as the list that it is given.
_MAKES = frozenset(
    f"torch.{name}"
    for name in (
        *("tensor", "as_tensor", "Tensor", "LongTensor", "FloatTensor", "stack", "cat"),
        *("concat", "concatenate", "vstack", "hstack"),
    )
)


def made_of_chosen(model: FileModel) -> Iterator[tuple[CallSite, cst.BaseExpression]]:
    """``torch.tensor(kept, device=device)``, ``torch.stack([kept])``: the calls, and the lists."""
    for call in model.calls(*_MAKES):
        if not call.positional or not model.value(call.node).is_device_tensor:
            continue
        given = call.positional[0]
        parts = [one.value for one in given.elements] if isinstance(given, cst.List) else [given]
        chosen = next((one for one in parts if is_chosen(model, one)), None)
        if chosen is not None:
            yield call, chosen


def is_chosen(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Whether a list has those elements alone of which a value on the device says so.

    ``[i for i, x in enumerate(labels) if x > 0]``, and what a loop appends under such a condition.
    """
    if isinstance(node, cst.ListComp | cst.GeneratorExp):
        tests = (one.test for one in node.for_in.ifs)
        return any(asks_tensor(model, test) for test in tests) or _goes_over(
            model, node.for_in.iter, depth
        )
    if not isinstance(node, cst.Name) or depth == 0:
        return False
    made = list(made_of(model, node))
    if len(made) != 1:
        return False
    if isinstance(made[0], cst.List) and not made[0].elements:
        appends = list(_appends(model, node))
        return any(
            _is_chosen_from(model, one, depth)
            # ``else: kept.append(0)``: one in each turn.
            and not any(
                opposed(model.guards(one.node), model.guards(other.node)) for other in appends
            )
            for one in appends
        )
    return is_chosen(model, made[0], depth - 1)


def _goes_over(model: FileModel, iterated: cst.BaseExpression, depth: int) -> bool:
    """Whether a loop goes over such a list, also with numbers beside."""
    return depth > 0 and any(
        isinstance(one, cst.Name | cst.ListComp) and is_chosen(model, one, depth - 1)
        for one in gone_over(model, iterated)
    )


def _appends(model: FileModel, name: cst.Name) -> Iterator[CallSite]:
    function = model.function_of(name)
    for call in model.methods("append"):
        if call.function is function and is_name(call.receiver, name.value):
            yield call


def _is_chosen_from(model: FileModel, append: CallSite, depth: int) -> bool:
    """Whether the values of a tensor say which turns of a loop put something into a list."""
    loop = model.loop(append.node)
    if loop is None or loop.over is None:
        return False
    asked = any(
        loop.node in model.tree.ancestors(guard.node)
        and not _ends_all(model, guard.node, append.node)
        and asks_tensor(model, guard.test)
        for guard in model.guards(append.node)
    )
    return asked or _goes_over(model, loop.over, depth)


def _ends_all(model: FileModel, decides: cst.CSTNode, append: cst.CSTNode) -> bool:
    """``if bad.any(): return None`` before a line: of what is left out there nothing is made."""
    if not isinstance(decides, cst.If) or decides in model.tree.ancestors(append):
        return False
    return isinstance(last_of(decides.body), cst.Return | cst.Raise)
