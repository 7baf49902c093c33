"""XLA403: a shuffling ``DistributedSampler`` that is never told the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, OnXla
from xladoctor.lint.model.by_name import GETATTR
from xladoctor.lint.model.conditions import joined
from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import made_by, same_name
from xladoctor.lint.rules._fabric import feeds_itself
from xladoctor.lint.rules._loaders import (
    DATA_LOADER,
    SAMPLER,
    bound_name,
    loops_over,
    says_evaluation,
)
from xladoctor.lint.rules._reads import snippet
from xladoctor.lint.rules._sharded import bound
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

#: What a DataLoader has and a device loader has not, and what asks for it.
_SAMPLERS = ("sampler", "batch_sampler")
_QUESTIONS = frozenset({"builtins.isinstance", "builtins.hasattr"})
#: How many calls up the loop over epochs is looked for.
_DEPTH = 3


@rule("XLA403")
def set_epoch_missing(model: FileModel) -> Iterator[Problem]:
    """Find shuffling distributed samplers of training loaders in files that never set the epoch."""
    if not model.is_xla:
        return
    yield from _never_told(model)
    if model.led_by and not feeds_itself(model):
        return
    if any(True for part in (model, *model.linked) for _ in part.methods("set_epoch")):
        return
    for call in model.calls(SAMPLER):
        shuffle = call.argument(3, "shuffle")
        said = True if shuffle is None else model.literal(shuffle)
        if call.has_star or said is False or said is None or not _for_training(model, call):
            continue
        if _is_handed_on(model, call):
            continue
        steps = _steps(model, call)
        if said is not True and not steps:
            continue  # ``shuffle=name == "train"``: only where a step loop goes over it
        epochs = _epochs(model, steps)
        if epochs is None or model.turns(epochs) == 1:
            continue
        yield model.problem(
            call.node,
            "without set_epoch this sampler gives the same order of samples in every epoch",
            suggestion="call sampler.set_epoch(epoch) at the start of every epoch",
            related=[model.place(epochs.node, "the epoch loop")],
            fix=_fix(model, call, epochs),
        )


def _is_handed_on(model: FileModel, made: CallSite) -> bool:
    """Whether a function that nobody has read is given the sampler, and may tell it the epoch.

    ``train_epoch(model, loader, sampler, epoch)``, not ``DataLoader(rows, sampler=sampler)``.
    """
    target = bound(model, made)
    if not isinstance(target, cst.Name):
        return False
    return any(
        is_name(argument.value, target.value)
        and (argument.keyword is None or argument.keyword.value not in _SAMPLERS)
        for call in model.calls()
        if call.function is made.function
        and call.target is None
        and not call.last.endswith("Loader")
        for argument in call.arguments
    )


def _never_told(model: FileModel) -> Iterator[Problem]:
    """``if isinstance(loader, DataLoader): loader.sampler.set_epoch(epoch)`` of a device loader.

    It is no DataLoader and has no sampler, so what the condition guards is left out on XLA devices.
    """
    for call in model.methods("set_epoch"):
        loader = _asked_before(model, call)
        made = _made_for_device(model, loader) if loader is not None else None
        if loader is None or made is None or model.on_xla(call.node) is OnXla.NO:
            continue
        yield model.problem(
            call.node,
            f"{snippet(model, loader)} is a device loader here, which is no DataLoader and has no "
            "sampler: the epoch is never set, and every epoch has the same order of samples",
            suggestion="keep the DataLoader in a name of its own, and tell its sampler the epoch",
            related=[model.place(made, "the device loader is made here")],
        )


def _asked_before(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """The loader whose sampler is told the epoch only if it has one, or is a DataLoader."""
    held = call.receiver
    if isinstance(held, cst.Name):
        made = made_by(model, held)
        of_loader = made is not None and made.name == GETATTR and len(made.positional) > 2
        if made is not None and of_loader and model.literal(made.positional[1]) in _SAMPLERS:
            return made.positional[0]
    inner = isinstance(held, cst.Attribute) and held.attr.value in _SAMPLERS
    loader = held.value if isinstance(held, cst.Attribute) and inner else held
    asked = (
        model.call(part)
        for guard in model.guards(call.node)
        if guard.when
        for part in joined(guard.test, cst.And)
        if isinstance(part, cst.Call)
    )
    return loader if any(_asks(model, one, loader) for one in asked) else None


def _asks(model: FileModel, asked: CallSite, loader: cst.BaseExpression | None) -> bool:
    """``isinstance(loader, DataLoader)``, ``hasattr(loader, "sampler")``."""
    if asked.name not in _QUESTIONS or len(asked.positional) < 2:
        return False
    what = asked.positional[1]
    fits = model.name(what) == DATA_LOADER or model.literal(what) in {*_SAMPLERS, "set_epoch"}
    return fits and same_name(asked.positional[0], loader)


def _made_for_device(model: FileModel, loader: cst.BaseExpression) -> cst.Call | None:
    """The call of torch_xla that makes what a loader is on XLA devices."""
    value = model.value(loader)
    if value.kind is not Kind.DEVICE_LOADER:
        return None
    found = [one.origin for one in (value, *value.roads) if one.kind is Kind.DEVICE_LOADER]
    made = [one for one in found if isinstance(one, cst.Call)]
    ours = [one for one in made if (model.name(one.func) or "").startswith("torch_xla.")]
    return ours[0] if ours and len(ours) == len(found) else None


def _for_training(model: FileModel, sampler: CallSite) -> bool:
    if says_evaluation(model, sampler.node):
        return False
    kinds = {loop.kind for loop in _loops(model, sampler)}
    if kinds:
        return LoopKind.STEP in kinds
    return "train" in bound_name(model, sampler.node) or not bound_name(model, sampler.node)


def _steps(model: FileModel, sampler: CallSite) -> list[Loop]:
    """The step loops that go over the loaders with a sampler."""
    return [loop for loop in _loops(model, sampler) if loop.kind is LoopKind.STEP]


def _epochs(model: FileModel, steps: list[Loop]) -> Loop | None:
    """The file's loop over epochs, or that of another file around the steps over the sampler.

    Not if anything in the program sets the epoch: files that do not import each other can do it.
    """
    here = next((loop for loop in model.loops if loop.kind is LoopKind.EPOCH), None)
    # ``for epoch in range(8)`` around steps that another file takes.
    here = here or next((loop for loop in model.loops if _counts_epochs(loop.node)), None)
    if here is not None:
        return here
    if any(call.method == "set_epoch" for call in model.program.sites.values()):
        return None
    found = (_around(model, loop.node, _DEPTH) for loop in steps)
    return next((loop for loop in found if loop is not None), None)


def _counts_epochs(loop: cst.CSTNode) -> bool:
    return isinstance(loop, cst.For) and last_name(loop.target) == "epoch"


def _around(model: FileModel, node: cst.CSTNode, depth: int) -> Loop | None:
    """The loop over epochs that runs a node, here or through calls."""
    loop = model.loop(node)
    if loop is None or loop.kind is LoopKind.EPOCH:
        function = model.function_of(node)
        callers = model.callers(function) if loop is None and function and depth else ()
        found = (_around(model, caller.node, depth - 1) for caller in callers)
        return loop or next((one for one in found if one is not None), None)
    return _around(model, loop.node, depth)


def _loops(model: FileModel, sampler: CallSite) -> list[Loop]:
    """The loops that go over the loaders with a sampler."""
    return [
        loop
        for loader in model.calls(DATA_LOADER)
        if (given := loader.keywords.get("sampler")) is not None
        and _is_sampler(model, given, sampler)
        for loop in loops_over(model, loader)
    ]


def _is_sampler(model: FileModel, given: cst.BaseExpression, sampler: CallSite) -> bool:
    """Also one that there is on several cores alone: ``sampler = None`` before an ``if``."""
    return model.value(given).origin is sampler.node or any(
        one is sampler.node for one in sources(model, given) or ()
    )


def _fix(model: FileModel, call: CallSite, epochs: Loop) -> Fix | None:
    """Tell the epoch first thing in the loop, if the sampler is a plain name there."""
    loop, parent = epochs.node, model.parent(call.node)
    if (
        not isinstance(loop, cst.For)
        or not isinstance(loop.target, cst.Name)
        or epochs.function is not call.function
        or not isinstance(parent, cst.Assign)
        or not isinstance(parent.targets[0].target, cst.Name)
        or not isinstance(loop.body, cst.IndentedBlock)
        or model.row(call.node) >= model.row(loop)
    ):
        return None
    sampler = parent.targets[0].target.value
    bindings = model.bindings(sampler, call.node)
    around = {guard.node for guard in model.guards(loop)}
    if len(bindings) != 1 or not {guard.node for guard in model.guards(call.node)} <= around:
        return None  # on another road there may be no sampler
    return model.fix(
        "Set the epoch",
        model.insert_before(loop.body.body[0], f"{sampler}.set_epoch({loop.target.value})"),
        safe=False,
    )
