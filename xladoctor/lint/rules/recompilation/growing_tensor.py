"""XLA206: a tensor that grows in every iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, LoopKind, OnXla, walk
from xladoctor.lint.model.dotted import assignments, is_name
from xladoctor.lint.model.frameworks import LIGHTNING_EVALS, LIGHTNING_STEPS
from xladoctor.lint.model.knowledge import JOINS, JOINS_AND_STACKS
from xladoctor.lint.model.loops import HOT
from xladoctor.lint.model.parts import each_in
from xladoctor.lint.model.turns import is_of_turn
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._carried import carried
from xladoctor.lint.rules._episodes import joined_episodes
from xladoctor.lint.rules._exact import around, same_name
from xladoctor.lint.rules._generation import generated, has_settings, unpacked
from xladoctor.lint.rules._growing_lists import grown, loop_of_turns
from xladoctor.lint.rules._lightning_hooks import is_lightning
from xladoctor.lint.rules._memories import whole_memories
from xladoctor.lint.rules._nested import NESTED, takes_device_tensor
from xladoctor.lint.rules._reads import costly_loop, loop_place, not_here, often, snippet
from xladoctor.lint.rules._sources import the_source
from xladoctor.lint.rules._turn_by_turn import ends_in_turns
from xladoctor.lint.rules._written_lists import written_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem, Value

#: Methods in which a module's caches are filled for one sequence.
_OF_MODELS = frozenset({"forward", "__call__", "update", "append", "prefill", "decode"})


@rule("XLA206")
def growing_tensor(model: FileModel) -> Iterator[Problem]:
    """Find ``x = torch.cat([x, new])`` on device tensors in hot loops, and ``generate``."""
    for node in model.nodes(cst.Assign, cst.AnnAssign):
        target, given = next(assignments(node), (None, None))
        joined = next(_joined(model, given), None) if given is not None else None
        if joined is None or target is None:
            continue
        call, value = joined
        if not value.holds_device_tensor and not takes_device_tensor(model, call):
            continue
        if not any(_is_same(model, part, target) for part in _parts(model, call)):
            continue
        loops = (costly_loop(model, node), _writing_loop(model, node, target))
        growing = (one for one in loops if one is not None and _grows_in(model, one, node, target))
        loop = next(growing, None)
        if loop is None:
            continue
        each = often(loop) if loop.kind in HOT else "in each turn of the loop"
        yield model.problem(
            node,
            f"{snippet(model, target)} has another shape {each}: everything that uses it is "
            "recompiled each time",
            suggestion="collect the pieces in a list and torch.cat them once after the loop; for a "
            "cache allocate the full size and use index_copy",
            related=[loop_place(model, loop)],
        )
    yield from _texts(model)
    yield from _written(model)
    yield from _episodes(model)
    yield from _lists(model)
    yield from _memories(model)


def _grows_in(model: FileModel, loop: Loop, node: cst.CSTNode, target: cst.BaseExpression) -> bool:
    """Whether a turn of a loop finds what the last one has made longer."""
    if not _goes_on(model, loop, target):
        return False
    if any(parent is loop.node for parent in around(model, node)):
        return not _starts_anew(model, node, loop.node, target)
    # In a function that the loop calls, a name starts anew with every call, as a rule.
    function = model.function_of(node)
    if isinstance(target, cst.Name):
        # What another loop hands round (blocks of a model) begins anew in this one.
        handing = carried(model, function, target.value)
        return handing is not None and loop.node in model.tree.ancestors(handing.node)
    return not _set_by_others(model, node, loop.node, target)


def _written(model: FileModel) -> Iterator[Problem]:
    """``torch.tensor([text], device=device)`` of a list that the model's own tokens have filled."""
    for call, loop, kept in written_lists(model) if model.is_xla else ():
        yield model.problem(
            call.node,
            f"{snippet(model, kept)} is as long as what the model wrote: each length is a graph of "
            "its own, and is compiled",
            suggestion="pad to the longest text (with a mask in the loss)",
            related=[loop_place(model, loop)],
        )


def _episodes(model: FileModel) -> Iterator[Problem]:
    """``torch.stack(values)`` of a list that an episode has filled."""
    for call, loop in joined_episodes(model) if model.is_xla else ():
        yield model.problem(
            call.node,
            f"{snippet(model, call.node)} is as long as the episode was: each length is a graph of "
            "its own, and is compiled",
            suggestion="pad to the longest episode (with a mask in the loss), or learn from "
            "rollouts of a fixed number of steps",
            related=[loop_place(model, loop)],
        )


def _memories(model: FileModel) -> Iterator[Problem]:
    """``random.sample(memory, min(len(memory), 64))`` before the memory holds a batch."""
    for node, loop in whole_memories(model) if model.is_xla else ():
        yield model.problem(
            node,
            "until it holds a batch, the batch is all that the memory holds: each time another "
            "shape, for which the whole step is compiled",
            suggestion="learn from batches of one size: wait until the memory holds one "
            "(if len(memory) < batch_size: return)",
            related=[loop_place(model, loop)],
        )


def _goes_on(model: FileModel, loop: Loop, target: cst.BaseExpression) -> bool:
    """Whether one turn of a loop finds what the last one kept.

    A function that somebody calls for each batch begins anew, but for the attributes of modules of
    Lightning: ``self.scores = torch.cat([self.scores, new])`` in ``validation_step``.
    """
    if not isinstance(loop.node, cst.FunctionDef):
        return True
    step = loop.function
    return (
        isinstance(target, cst.Attribute)
        and step is not None
        and step.owner is not None
        and step.name in LIGHTNING_STEPS | LIGHTNING_EVALS
        and is_lightning(model, step.owner)
    )


def _lists(model: FileModel) -> Iterator[Problem]:
    """``torch.stack(losses)`` on each step, of a list that each step makes longer."""
    for call in model.calls(*JOINS_AND_STACKS):
        kept = call.argument(0, "tensors")
        if not isinstance(kept, cst.Name | cst.Attribute):
            continue
        if not model.value(call.node).is_device_tensor or not_here(model, call.node):
            continue
        loop = costly_loop(model, call.node) or loop_of_turns(model, call.node)
        if loop is None or not _goes_on(model, loop, kept):
            continue
        longer = grown(model, kept, loop.node)
        if longer is not None:
            yield model.problem(
                call.node,
                f"{snippet(model, kept)} is longer {often(loop)}: what is made of it has another "
                "shape each time, and everything that uses it is recompiled",
                suggestion="add up on the device (total += loss.detach()), or put the list "
                "together once after the loop",
                related=[loop_place(model, loop), model.place(longer, "this makes it longer")],
            )


def _writing_loop(model: FileModel, node: cst.CSTNode, target: cst.BaseExpression) -> Loop | None:
    """The loop that gives a model what it has written so far, in each turn one token more."""
    loop = model.loop(node)
    if loop is None or loop.kind is not LoopKind.OTHER or loop.implicit:
        return None
    if not isinstance(target, cst.Name) or model.on_xla(node) is OnXla.NO:
        return None
    if not ends_in_turns(model, loop):
        return None
    names = {target.value, *_made_of(loop.node, target.value)}
    for call in model.reached(loop.node):
        if is_of_turn(loop.node, call.node.func):
            continue
        given = (part for one in call.node.args for part in walk(one.value))
        named = {part.value for part in given if isinstance(part, cst.Name)}
        if _runs_model(model, call) and not names.isdisjoint(named):
            return loop
    return None


def _made_of(loop: cst.CSTNode, name: str) -> Iterator[str]:
    """The names that a loop binds to parts of a tensor: ``last = generated[:, -1:]``."""
    for part in walk(loop):
        if isinstance(part, cst.Assign) and any(is_name(one, name) for one in walk(part.value)):
            targets = (one.target for one in part.targets)
            yield from (one.value for one in targets if isinstance(one, cst.Name))


def _runs_model(model: FileModel, call: CallSite) -> bool:
    """``net(ids)``, ``net.decode(memory, ids)``, and ``self(ids)`` in a method of a module."""
    ran = (call.node.func, call.receiver)
    if any(one is not None and model.value(one).kind is Kind.MODEL for one in ran):
        return True
    function = call.function
    if function is None or function.owner is None or not model.is_module(function.owner):
        return False
    return call.written in {"self", "forward"}


def _texts(model: FileModel) -> Iterator[Problem]:
    """``model.generate(ids)``: its cache grows by each token, unless it is asked for another."""
    fixed = any(node.attr.value == "cache_implementation" for node in model.nodes(cst.Attribute))
    for call, writing in () if fixed else generated(model):
        asked = {*call.keywords, *unpacked(model, call)}
        if "cache_implementation" not in asked and not has_settings(model, call):
            yield model.problem(
                call.node,
                "the texts and the cache of generate grow by each token: every length is another "
                "shape, which is compiled",
                suggestion='cache_implementation="static", with prompts padded to one length',
                related=writing.related,
            )


def _is_same(model: FileModel, part: cst.BaseExpression, target: cst.BaseExpression) -> bool:
    """The same name or attribute, or the same place in one: ``self.kept["labels"]``."""
    if isinstance(part, cst.Subscript) and isinstance(target, cst.Subscript):
        return model.tree.text(part).strip() == model.tree.text(target).strip()
    return same_name(part, target)


def _parts(model: FileModel, call: CallSite) -> Iterator[cst.BaseExpression]:
    given = call.argument(0, "tensors")
    given = the_source(model, given) if given is not None else None
    if isinstance(given, cst.List | cst.Tuple):
        yield from (element.value for element in given.elements)
    elif call.last in NESTED:
        yield from call.positional[:2]


def _joined(model: FileModel, node: cst.BaseExpression) -> Iterator[tuple[CallSite, Value]]:
    """The call that joins, also of ``new if kept is None else torch.cat([kept, new])``."""
    if isinstance(node, cst.IfExp):
        yield from _joined(model, node.body)
        yield from _joined(model, node.orelse)
    elif isinstance(node, cst.Call):
        call = model.call(node)
        if call.name in JOINS or call.last in NESTED:
            yield call, model.value(node)


def _set_by_others(
    model: FileModel, node: cst.CSTNode, loop: cst.CSTNode, target: cst.BaseExpression
) -> bool:
    """Whether what an object keeps may start anew within the loop: other code there sets it too.

    ``self.temp["labels"]`` of a tracker, which is reset once in an epoch, behind the loop.
    """
    function = model.function_of(node)
    kept = target.value if isinstance(target, cst.Subscript) else target
    if function is None or not isinstance(kept, cst.Attribute):
        return True
    if function.name in _OF_MODELS or function.owner is None:
        return True  # a cache of one sequence
    name = kept.attr.value
    ran = {call.target for call in model.reached(loop)} - {function, None}
    return any(
        isinstance(part, cst.Assign | cst.AugAssign | cst.AnnAssign | cst.Del)
        and name in _kept_in(part)
        for one in ran
        if isinstance(one, Function)
        for part in walk(one.node.body)
    )


def _kept_in(line: cst.CSTNode) -> Iterator[str]:
    """The attributes that a statement sets or removes, also those whose elements it does."""
    for part in walk(line):
        if isinstance(part, cst.Attribute):
            yield part.attr.value


def _starts_anew(
    model: FileModel, node: cst.CSTNode, loop: cst.CSTNode, target: cst.BaseExpression
) -> bool:
    """Whether the loop's body sets the name too: then it has the same size every time."""
    if isinstance(loop, cst.For | cst.CompFor) and any(
        same_name(part, target)
        for part in walk(loop.target)
        if isinstance(part, cst.BaseExpression)
    ):
        return True
    for other in walk(loop):
        for bound, value in assignments(other) if other is not node else ():
            if (
                any(same_name(part, target) for part in each_in(bound))
                and not (_is_none(value) and _now_and_then(model, other, loop))
                and not _is_first(model, other, node, target, loop)
            ):
                return True
    return False


def _now_and_then(model: FileModel, line: cst.CSTNode, loop: cst.CSTNode) -> bool:
    """Whether a line of a loop stands under a condition there."""
    return any(loop in model.tree.ancestors(guard.node) for guard in model.guards(line))


def _is_first(
    model: FileModel,
    other: cst.CSTNode,
    node: cst.CSTNode,
    target: cst.BaseExpression,
    loop: cst.CSTNode,
) -> bool:
    """``if kept is None: kept = new``, with the longer one in the other branch."""
    sides = {(guard.node, guard.inside) for guard in model.guards(other)}
    return any(
        (guard.node, not guard.inside) in sides and _tells_first(guard.test, target, loop)
        for guard in model.guards(node)
    )


def _tells_first(test: cst.BaseExpression, target: cst.BaseExpression, loop: cst.CSTNode) -> bool:
    """``kept is None``, ``kept is not None``; ``step == 0`` of what the loop counts."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    compared = test.comparisons[0]
    if isinstance(compared.operator, cst.Equal) and isinstance(compared.comparator, cst.Integer):
        counted = walk(loop.target) if isinstance(loop, cst.For) else ()
        named = (part for part in counted if isinstance(part, cst.Name))
        return compared.comparator.value == "0" and any(same_name(x, test.left) for x in named)
    return same_name(test.left, target) and isinstance(compared.operator, cst.Is | cst.IsNot)


def _is_none(node: cst.BaseExpression) -> bool:
    """``None``, or a tuple of that: what is kept is emptied."""
    if isinstance(node, cst.Tuple | cst.List):
        return all(_is_none(element.value) for element in node.elements)
    return is_name(node, "None")
