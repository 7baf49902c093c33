"""XLA608: iterators of device loaders that are left with batches in them, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, LoopKind, walk
from xladoctor.lint.model.conditions import joined
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._endless import endless_behind
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._sharded import bound
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard, Loop, Problem


_OPPOSED = {
    (cst.GreaterThanEqual, cst.LessThan),
    (cst.GreaterThan, cst.LessThanEqual),
    (cst.Equal, cst.LessThan),
    (cst.Equal, cst.NotEqual),
    (cst.LessThan, cst.GreaterThanEqual),
    (cst.LessThanEqual, cst.GreaterThan),
}
#: ``a < b`` as ``b > a``.
_TURNED: dict[type[cst.BaseCompOp], type[cst.BaseCompOp]] = {
    cst.LessThan: cst.GreaterThan,
    cst.LessThanEqual: cst.GreaterThanEqual,
    cst.GreaterThan: cst.LessThan,
    cst.GreaterThanEqual: cst.LessThanEqual,
}
#: Functions between the epoch loop and the loop over batches.
_DEPTH = 2
_LOADER = "torch_xla.distributed.parallel_loader.ParallelLoader"


@rule("XLA608")
def abandoned_device_loader(model: FileModel) -> Iterator[Problem]:
    """Find ``break`` in loops over a ``per_device_loader`` of each epoch.

    And ``next(iter(batches))`` of a device loader in a step loop, and a ParallelLoader that nothing
    asks for batches.
    """
    if not model.is_xla:
        return
    yield from _begun_again(model)
    yield from _never_asked(model)
    for loop in model.loops:
        maker = loop.iterates.origin
        if not isinstance(loop.node, cst.For) or not isinstance(maker, cst.Call):
            continue
        if not model.is_here(maker) or model.call(maker).name != _LOADER:
            continue
        if not _repeated(model, loop, maker) or _goes_on(model, loop, maker):
            continue
        leave = _break(model, loop)
        if leave is None or any(_closes_loader(model, call) for call in model.methods("close")):
            continue
        yield model.problem(
            leave,
            "leaving the loop here leaks the two threads of the ParallelLoader and the batches "
            "they have fetched, in every epoch",
            suggestion="iterate over pl.MpDeviceLoader(loader, device), which cleans up",
            related=[
                model.place(maker, "made anew for every epoch"),
                model.place(loop.node, "the loop"),
            ],
        )


def _closes_loader(model: FileModel, call: CallSite) -> bool:
    """``parallel_loader.close()``; a bar over it (``epoch_iterator.close()``) closes itself."""
    held = call.receiver
    if held is None:
        return False
    return (
        model.value(held).kind is Kind.PARALLEL_LOADER or "loader" in model.tree.text(held).lower()
    )


def _begun_again(model: FileModel) -> Iterator[Problem]:
    """``next(iter(batches))`` on every step: an iterator for one batch each."""
    for call in model.calls("builtins.next"):
        made = call.argument(0, "")
        loop = model.step_loop(call.node)
        if loop is None or model.throttled(call.node) or not isinstance(made, cst.Call):
            continue
        given = model.call(made)
        batches = given.argument(0, "")
        if given.name != "builtins.iter" or batches is None:
            continue
        if model.value(batches).kind is not Kind.DEVICE_LOADER:
            continue
        yield model.problem(
            call.node,
            "every step restarts the device loader: threads start and upload batches that "
            "nothing consumes, and without shuffling each step sees the first batch again",
            suggestion="make the iterator once, before the loop, or go over the loader",
            related=[model.place(loop.node, "the step loop")],
        )


def _never_asked(model: FileModel) -> Iterator[Problem]:
    """``tests = pl.ParallelLoader(loader, [device])`` that no line reads, or the next one replaces.

    Its threads start as it is made.
    """
    for call in model.calls(_LOADER):
        target = bound(model, call)
        if not isinstance(target, cst.Name) or call.function is None:
            continue
        scope = model.tree.scopes.get(target)
        reads = [
            node
            for node in model.within(call.function.node, cst.Name)
            if node.value == target.value
            and node in model.tree.scopes
            and not isinstance(model.parent(node), cst.AssignTarget)
        ]
        if scope is None or target.value in scope.globals:
            continue
        if reads and not _is_replaced(model, call, target.value, reads):
            continue
        yield model.problem(
            call.node,
            "nothing asks this loader for batches: its threads fetch some, upload them, and stay",
            suggestion="leave it out, or give it to what was to go over it",
        )


def _is_replaced(model: FileModel, call: CallSite, name: str, reads: list[cst.Name]) -> bool:
    """Whether the next line of the block gives the name to another loader, unread."""
    here = model.tree.statement(call.node)
    if here is None or not isinstance(here.block, cst.IndentedBlock | cst.Module):
        return False
    behind = here.block.body[here.index + 1 :][:1]
    part = behind[0].body[0] if behind and isinstance(behind[0], cst.SimpleStatementLine) else None
    if not isinstance(part, cst.Assign) or not is_name(part.targets[0].target, name):
        return False
    return not any(node in reads for node in walk(part.value))


def _goes_on(model: FileModel, loop: Loop, maker: cst.Call) -> bool:
    """Whether the next epoch takes the batches that this one leaves: an endless iterator."""
    made_outside = model.loop(maker) is None and loop.function is model.function_of(maker)
    return made_outside and endless_behind(model, model.call(maker))


def _repeated(model: FileModel, loop: Loop, maker: cst.Call) -> bool:
    """Whether an epoch loop makes the iterator, directly or by calling the function it is in."""
    if loop.function is model.function_of(maker):
        return _in_epoch(model, maker, _DEPTH) or _in_epoch(model, loop.node, _DEPTH)
    return any(_in_epoch(model, node, 0) for node in (maker, loop.node))


def _in_epoch(model: FileModel, node: cst.CSTNode, depth: int) -> bool:
    around = model.loop(node)
    if around is not None and around.kind is LoopKind.EPOCH:
        return True
    function = model.function_of(node)
    if function is None or depth == 0:
        return False
    return any(_in_epoch(model, call.node, depth - 1) for call in model.callers(function))


def _break(model: FileModel, loop: Loop) -> cst.CSTNode | None:
    assert isinstance(loop.node, cst.For)
    for node in walk(loop.node.body, into_functions=False):
        if not isinstance(node, cst.Break) or model.loop(node) is not loop:
            continue
        if not _ends_all(model, node) and not _is_at_last(model, node, loop.node):
            return node
    return None


def _is_at_last(model: FileModel, leave: cst.Break, loop: cst.For) -> bool:
    """``if i == len(loader) - 1: break``: nothing is left to fetch then."""
    guard = next(iter(model.guards(leave)), None)
    test = guard.test if guard is not None and guard.when else None
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    [asked] = test.comparisons
    if not isinstance(asked.operator, cst.Equal | cst.GreaterThanEqual):
        return False
    counts = isinstance(loop.target, cst.Tuple) and same_name(
        loop.target.elements[0].value, test.left
    )
    ways = sources(model, asked.comparator) or ()
    return counts and bool(ways) and all(map(_is_last, ways))


def _is_last(node: cst.CSTNode) -> bool:
    """``len(loader) - 1``."""
    return (
        isinstance(node, cst.BinaryOperation)
        and isinstance(node.operator, cst.Subtract)
        and isinstance(node.right, cst.Integer)
        and isinstance(node.left, cst.Call)
        and is_name(node.left.func, "len")
    )


def _ends_all(model: FileModel, leave: cst.Break) -> bool:
    """Whether the loop around is left too, by the same condition behind the loop: once, that is."""
    guard = next(iter(model.guards(leave)), None)
    loop = model.loop(leave)
    block = model.parent(loop.node) if loop is not None else None
    if guard is None or not isinstance(block, cst.IndentedBlock):
        return False
    if loop is not None and _ends_while(model, guard, loop.node):
        return True
    behind = {
        model.tree.text(part).strip()
        for other in block.body
        if isinstance(other, cst.If) and _leaves(other)
        for part in (other.test, *joined(other.test, cst.Or))
    }
    asked = list(joined(guard.written, cst.Or)) if guard.when else [guard.written]
    ends = [model.tree.text(part).strip() in behind for part in asked]
    rest = (part for part, sure in zip(asked, ends, strict=True) if not sure)
    whole = model.tree.text(guard.written).strip() in behind
    return whole or (any(ends) and all(_is_never_set(model, part) for part in rest))


def _leaves(node: cst.If) -> bool:
    return any(
        isinstance(part, cst.Break | cst.Return) for part in walk(node.body, into_functions=False)
    )


def _is_never_set(model: FileModel, test: cst.BaseExpression) -> bool:
    """``control.should_epoch_stop`` of a program that never sets such an attribute but to False."""
    if not isinstance(test, cst.Attribute):
        return False
    name = test.attr.value
    return all(
        is_name(node.value, "False")
        for part in (model, *model.linked)
        for node in part.nodes(cst.Assign)
        for target in node.targets
        if isinstance(target.target, cst.Attribute) and target.target.attr.value == name
    )


def _ends_while(model: FileModel, guard: Guard, inner: cst.CSTNode) -> bool:
    """``while step < limit:`` around, where the break is for ``step >= limit``: all is over."""
    denies = _is_opposite if guard.when else _is_part
    return any(
        denies(model, guard.test, around.test)
        or (guard.when and _asks_for_limit(model, guard.test, around.test))
        for around in _whiles_around(model, inner, _DEPTH)
    )


def _whiles_around(model: FileModel, node: cst.CSTNode, depth: int) -> Iterator[cst.While]:
    """The ``while`` loops around a node, or around all calls of its function."""
    for around in model.tree.ancestors(node):
        if isinstance(around, cst.While):
            yield around
        elif isinstance(around, cst.FunctionDef):
            break
    function = model.function_of(node)
    callers = model.callers(function) if function is not None and depth else ()
    here = [call.node for call in callers if model.is_here(call.node)]
    if len(here) == 1 == len(callers):
        yield from _whiles_around(model, here[0], depth - 1)


def _asks_for_limit(
    model: FileModel, leaves: cst.BaseExpression, goes_on: cst.BaseExpression
) -> bool:
    """``steps >= limit`` of a ``while goes_on(trainer):`` that asks for ``done < limit`` itself."""
    called = model.call(goes_on).target if isinstance(goes_on, cst.Call) else None
    if not isinstance(called, Function) or not isinstance(leaves, cst.Comparison):
        return False
    asked = leaves.comparisons[0]
    return any(
        isinstance(part, cst.Comparison)
        and (type(asked.operator), type(part.comparisons[0].operator)) in _OPPOSED
        and same_name(asked.comparator, part.comparisons[0].comparator)
        for value in returned(called)
        for part in joined(value, cst.And)
    )


def _is_part(model: FileModel, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Whether a condition is another, or one of those that have to hold for it."""
    text = model.tree.text(one).strip()
    return any(model.tree.text(part).strip() == text for part in joined(other, cst.And))


def _is_opposite(model: FileModel, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Whether a condition is what another denies: ``a >= b`` of ``a < b``, ``not x`` of ``x``."""
    if isinstance(other, cst.UnaryOperation) and isinstance(other.operator, cst.Not):
        return model.tree.text(other.expression).strip() == model.tree.text(one).strip()
    if isinstance(other, cst.BooleanOperation) and isinstance(other.operator, cst.And):
        return _is_opposite(model, one, other.left) or _is_opposite(model, one, other.right)
    if not isinstance(one, cst.Comparison) or not isinstance(other, cst.Comparison):
        return False
    first, second = one.comparisons[0], other.comparisons[0]
    same = [model.tree.text(part).strip() for part in (one.left, first.comparator)]
    read = [model.tree.text(part).strip() for part in (other.left, second.comparator)]
    kind = type(second.operator)
    if same == read:
        return (type(first.operator), kind) in _OPPOSED
    return same == read[::-1] and (type(first.operator), _TURNED.get(kind, kind)) in _OPPOSED
