"""XLA415: the iterator of ``per_device_loader`` is empty in the second epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rewrites.parallel import PARALLEL, device_loader_fix
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._endless import endless_behind
from xladoctor.lint.rules._exact import around, assigned, given_last, in_order, made_by
from xladoctor.lint.rules._for_epochs import taken_for_epochs
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem
    from xladoctor.lint.model.problems import Place

_ASKS = frozenset(f"builtins.{name}" for name in ("len", "isinstance", "hasattr", "type"))


@rule("XLA415")
def device_loader_reuse(model: FileModel) -> Iterator[Problem]:
    """Find one ``per_device_loader`` that several epochs go over, and batches that are kept."""
    if not model.is_xla:
        return
    for call in model.calls("itertools.cycle"):
        over = call.argument(0)
        if over is None or model.value(over).kind is not Kind.DEVICE_LOADER:
            continue
        if _is_bound_anew(model, call):
            continue
        yield model.problem(
            call.node,
            "itertools.cycle keeps each batch of the first pass, here on the device until its "
            "memory is full, and then gives the same ones again, in the same order",
            suggestion="loop over the device loader once for each epoch",
        )
    for call in model.methods("per_device_loader"):
        problem = _of_loader(model, call) or _of_iterator(model, call)
        if problem is not None:
            yield problem


def _is_bound_anew(model: FileModel, call: CallSite) -> bool:
    """``batches = cycle(loader)``, where another line gives the name what is really gone over."""
    line = model.parent(call.node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    return isinstance(target, cst.Name) and len(list(model.bindings(target.value, target))) > 1


def _of_loader(model: FileModel, call: CallSite) -> Problem | None:
    """What is asked for batches has none, or none any more."""
    if _wraps_itself(model, call):
        return model.problem(
            call.node,
            "from the second epoch on this wraps the device loader of the epoch before, "
            "which is exhausted: no step runs",
            suggestion="give the device loader a name of its own",
        )
    used_up = _made_before(model, call) or _made_before_the_end(model, call)
    if used_up is not None:
        return model.problem(
            call.node,
            "a ParallelLoader goes over its loader once: from the second epoch on there is "
            "nothing left, and no step is made",
            suggestion="loader = pl.MpDeviceLoader(loader, device), which starts anew every epoch",
            related=[model.place(used_up.node, "made once, before the epochs")],
            fix=_fix(model, call.receiver),
        )
    before = _asked_before(model, call)
    if before is None:
        return None
    return model.problem(
        call.node,
        "a ParallelLoader goes over its loader once: what asks it here, behind the first, "
        "gets no batch",
        suggestion="make another ParallelLoader, of the loader that is meant",
        related=[model.place(before.node, "asked here first")],
    )


def _of_iterator(model: FileModel, call: CallSite) -> Problem | None:
    """What it gives is gone over in several epochs, unless it goes on for ever."""
    loader = made_by(model, call.receiver) if call.receiver is not None else None
    if loader is not None and endless_behind(model, loader):
        return None
    taken = taken_for_epochs(model, call)
    if taken is not None:
        return _exhausted(model, call, [taken], None)
    for loop in model.loops:
        if loop.kind is not LoopKind.EPOCH or model.turns(loop) == 1:
            continue
        uses = (_use_of(model, loop, maker) for maker in _makers(model, call))
        use = next((one for one in uses if one is not None), None)
        if use is not None:
            related = [
                model.place(loop.node, "the epoch loop"),
                model.place(use, "the same iterator in every epoch"),
            ]
            return _exhausted(model, call, related, _fix(model, call.receiver))
    return None


def _exhausted(
    model: FileModel, call: CallSite, related: Sequence[Place], fix: Fix | None
) -> Problem:
    return model.problem(
        call.node,
        "per_device_loader returns an iterator for one epoch: in the second it is exhausted, and "
        "no step runs",
        suggestion="loader = pl.MpDeviceLoader(loader, device), which starts over in every epoch",
        related=related,
        fix=fix,
    )


def _made_before(model: FileModel, call: CallSite) -> CallSite | None:
    """The one ParallelLoader, made before the epoch loop, that is asked anew in each epoch."""
    epochs = [
        loop.node
        for loop in model.loops
        if loop.kind is LoopKind.EPOCH
        and model.turns(loop) != 1
        and loop.node in around(model, call.node)
    ]
    made = _one_loader(model, call.receiver) if epochs else None
    outside = made is not None and not any(epoch in around(model, made.node) for epoch in epochs)
    return made if outside else None


def _asked_before(model: FileModel, call: CallSite) -> CallSite | None:
    """The call before, in the same block, that has used up the ParallelLoader.

    ``train(loader.per_device_loader(device))`` and ``test(loader.per_device_loader(device))``.
    """
    loader, here = call.receiver, model.tree.statement(call.node)
    if not isinstance(loader, cst.Name) or here is None:
        return None
    last = given_last(model, loader)
    if not isinstance(last, cst.Call) or model.name(last.func) != PARALLEL:
        return None
    for other in model.methods("per_device_loader"):
        held, there = other.receiver, model.tree.statement(other.node)
        if other.node is call.node or not isinstance(held, cst.Name) or held.value != loader.value:
            continue
        beside = there is not None and there.block is here.block
        used = isinstance(model.parent(other.node), cst.Arg)
        same = [model.tree.text(one.value) for one in other.node.args] == [
            model.tree.text(one.value) for one in call.node.args
        ]
        if beside and used and same and in_order(model, other.node, call.node):
            return other if given_last(model, held) is last else None
    return None


def _made_before_the_end(model: FileModel, call: CallSite) -> CallSite | None:
    """The ParallelLoader that is asked again behind ``except StopIteration``: it has ended."""
    ended = any(
        isinstance(node, cst.ExceptHandler)
        and node.type is not None
        and model.name(node.type) == "builtins.StopIteration"
        for node in around(model, call.node)
    )
    made = _one_loader(model, call.receiver) if ended else None
    return made if made is not None and model.loop(made.node) is None else None


def _one_loader(model: FileModel, loader: cst.BaseExpression | None) -> CallSite | None:
    """The one ParallelLoader that a name is."""
    if not isinstance(loader, cst.Name):
        return None
    values = assigned(model, loader)
    wrapped = [one for one in values if model.name(getattr(one, "func", one)) == PARALLEL]
    if len(wrapped) != 1 or not isinstance(wrapped[0], cst.Call):
        return None
    made = model.call(wrapped[0])
    # ``loader = ParallelLoader(loader, [device])`` wraps what the name held before.
    alone = all(one is made.node or in_order(model, one, made.node) for one in values)
    return made if alone else None


def _makers(model: FileModel, call: CallSite) -> Iterator[cst.CSTNode]:
    """What gives the iterator: the call, or those of the function that gives it back.

    ``get_train_dataloader()`` of copies of the Trainer of 2020.
    """
    yield call.node
    function = call.function
    if function is not None and any(
        value is call.node
        or (isinstance(value, cst.Name) and any(x is call.node for x in assigned(model, value)))
        for value in returned(function)
    ):
        yield from (caller.node for caller in model.callers(function))


def _use_of(model: FileModel, loop: Loop, maker: cst.CSTNode) -> cst.CSTNode | None:
    """Where an epoch loop uses the iterator that was made outside of it."""
    if loop.function is not model.function_of(maker) and not _kept(model, maker):
        return None
    if any(node is loop.node for node in around(model, maker)):
        return None
    return _use_inside(model, loop.node, maker)


def _wraps_itself(model: FileModel, call: CallSite) -> bool:
    """``loader = ParallelLoader(loader, [device]).per_device_loader(device)`` in each epoch."""
    parent = model.parent(call.node)
    loop = model.loop(call.node)
    if not isinstance(parent, cst.Assign) or loop is None or loop.kind is not LoopKind.EPOCH:
        return False
    made = call.receiver
    inner = made.args[0].value if isinstance(made, cst.Call) and made.args else None
    target = parent.targets[0].target
    if not isinstance(target, cst.Name) or not isinstance(inner, cst.Name):
        return False
    if target.value != inner.value or (model.name(made.func) or "") != PARALLEL:  # type: ignore[union-attr]
        return False
    anew = [value for value in assigned(model, inner) if value is not call.node]
    return not any(loop.node in around(model, value) for value in anew)


def _fix(model: FileModel, loader: cst.BaseExpression | None) -> Fix | None:
    made = made_by(model, loader) if loader is not None else None
    if made is None or made.name != PARALLEL:
        return None
    return device_loader_fix(model, made)


def _use_inside(model: FileModel, epochs: cst.CSTNode, maker: cst.CSTNode) -> cst.CSTNode | None:
    """Where the epoch loop uses the name that holds the iterator, as loop or as argument."""
    for scope in model.tree.scopes:
        if not isinstance(scope, cst.Name | cst.Attribute):
            continue
        if isinstance(model.parent(scope), cst.AssignTarget) or _is_asked(model, scope):
            continue
        if not any(n is epochs for n in around(model, scope)):
            continue
        if isinstance(scope, cst.Attribute):
            if sources(model, scope, 1) == [maker]:
                return scope
        elif _holds(model, scope, epochs, maker):
            return scope
    return None


def _is_asked(model: FileModel, node: cst.CSTNode) -> bool:
    """``len(batches)``, ``isinstance(batches, DataLoader)``: nothing is taken out of it."""
    argument = model.parent(node)
    call = model.parent(argument) if isinstance(argument, cst.Arg) else None
    return isinstance(call, cst.Call) and model.name(call.func) in _ASKS


def _kept(model: FileModel, maker: cst.CSTNode) -> bool:
    """Whether an object keeps the iterator: ``self.batches = ...``."""
    parent = model.parent(maker)
    return isinstance(parent, cst.Assign) and all(
        isinstance(target.target, cst.Attribute) for target in parent.targets
    )


def _holds(model: FileModel, name: cst.Name, epochs: cst.CSTNode, maker: cst.CSTNode) -> bool:
    """Whether the name holds the iterator in the loop, whatever it held before it was made."""
    values = assigned(model, name)
    if not any(value is maker for value in values):
        return False
    later = [value for value in values if value is not maker and in_order(model, maker, value)]
    anew = [
        value
        for value in values
        if value is not maker
        and in_order(model, value, name)
        and any(node is epochs for node in around(model, value))
    ]
    return not later and not anew and not any(node is epochs for node in around(model, maker))
