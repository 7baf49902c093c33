"""What rules about data loaders share: what a loader is for, who iterates it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, walk
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._sources import gone_over, made_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Function, Loop

DATA_LOADER = "torch.utils.data.DataLoader"
SAMPLER = "torch.utils.data.DistributedSampler"
_BATCHES = ("torch.utils.data.BatchSampler",)

#: Words that say "not for training", and beginnings that do ("device" and "values" do not).
_EVAL_WORDS = frozenset({"val", "dev"})
_EVAL_BEGINNINGS = ("valid", "valload", "valset", "valdata", "test", "eval", "infer", "pred")
_DEEPEST = 6
_NEXT = "builtins.next"


def batches_of(model: FileModel, node: cst.BaseExpression) -> CallSite | None:
    """What makes torch's ``BatchSampler(sampler, size, drop_last)`` that a loader is given."""
    return made_in(model, node, _BATCHES)


def bound_name(model: FileModel, node: cst.CSTNode) -> str:
    """The name that a call's result is assigned to, lower case; "" if there is none."""
    parent = model.parent(node)
    for _ in range(_DEEPEST):
        if isinstance(parent, cst.Assign):
            target = parent.targets[0].target
            if isinstance(target, cst.Attribute):
                return target.attr.value.lower()
            return target.value.lower() if isinstance(target, cst.Name) else ""
        if parent is None or isinstance(parent, cst.BaseStatement):
            return ""
        parent = model.parent(parent)
    return ""


def says_evaluation(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether names say that a loader or sampler is not for training."""
    function = model.function_of(node)
    return is_of_evaluation(bound_name(model, node), function.name.lower() if function else "")


def is_of_evaluation(*names: str) -> bool:
    """Whether one of the words of some names, in small letters, says it is not for training."""
    parts = [part for name in names for part in re.split(r"[_.]", name)]
    return any(part in _EVAL_WORDS or part.startswith(_EVAL_BEGINNINGS) for part in parts)


def loops_over(model: FileModel, call: CallSite) -> Sequence[Loop]:
    """The loops that go over the loader that a call makes, through device loaders too.

    Those of other files count: what makes the loaders often stands in a file of its own.
    """
    return model.once(_loops_by_maker).get(call.node, ())


def _loops_by_maker(model: FileModel) -> Mapping[cst.CSTNode, Sequence[Loop]]:
    """The loops of the program by each call that had a part in making what they go over."""
    found: dict[cst.CSTNode, list[Loop]] = {}
    for loop in model.loops_of_program:
        origins = dict.fromkeys([loop.iterates.origin, *_beside_each_other(model, loop)])
        makers = dict.fromkeys(x for one in origins for x in _makers(model, one))
        for origin in _asked_one_by_one(model, loop):
            # A helper that both loaders go through hands on either.
            made = _makers(model, origin)
            makers |= {x: None for x in made if not says_evaluation(model.file_with(x), x)}
        for maker in makers:
            found.setdefault(maker, []).append(loop)
    return found


def _asked_one_by_one(model: FileModel, loop: Loop) -> Iterator[cst.CSTNode | None]:
    """Where what a step asks for its batch was made: ``next(turns)``, here or in a helper."""
    if loop.kind is not LoopKind.STEP or loop.implicit or loop.iterates.is_loader:
        return
    for call in model.reached(loop.node):
        if call.name == _NEXT and call.positional:
            value = model.value(call.positional[0])
            if value.is_loader:
                yield value.origin


def _beside_each_other(model: FileModel, loop: Loop) -> Iterator[cst.CSTNode | None]:
    """Where what a loop goes over side by side was made: ``zip(labelled, unlabelled)``."""
    for one in gone_over(model, loop.over) if loop.over is not None else ():
        if isinstance(one, cst.Call) and model.name(one.func) == "builtins.zip":
            values = (model.value(part.value) for part in one.args if not part.star)
            yield from (value.origin for value in values if value.is_loader)


def loops_by_callers(model: FileModel, call: CallSite) -> Sequence[tuple[Loop, CallSite]]:
    """The loops of functions that are given the loader, and others: ``run_epoch(net, loader)``.

    With the call that gives it.
    """
    return model.once(_loops_by_given).get(call.node, ())


def _loops_by_given(model: FileModel) -> Mapping[cst.CSTNode, Sequence[tuple[Loop, CallSite]]]:
    """The loops over a parameter by each call that had a part in making what one caller gives."""
    found: dict[cst.CSTNode, list[tuple[Loop, CallSite]]] = {}
    for loop in model.loops_of_program:
        function = loop.function
        if function is None or loop.over is None:
            continue
        calls = model.callers(function)
        for name in _parameters_in(model, loop.over, function) if calls else ():
            for call in calls:
                value = call.given_to(function, name)
                for maker in _makers(model, value and model.value(value).origin):
                    found.setdefault(maker, []).append((loop, call))
    return found


def _parameters_in(model: FileModel, over: cst.CSTNode, function: Function) -> Iterator[str]:
    """The parameters that a loop goes over, also in a bar: ``bar = tqdm(loader)``."""
    names = [part for part in walk(over) if isinstance(part, cst.Name)]
    bars = [made for name in names for made in assigned(model, name) if isinstance(made, cst.Call)]
    names += [part for made in bars for part in walk(made) if isinstance(part, cst.Name)]
    yield from dict.fromkeys(x.value for x in names if x.value in function.parameters)


def _makers(model: FileModel, origin: cst.CSTNode | None) -> Iterable[cst.CSTNode]:
    """What made a value, and what that was made from, a few calls deep."""
    found: dict[cst.CSTNode, None] = {}
    waiting = [] if origin is None else [origin]
    for _ in range(_DEEPEST + 1):
        found |= dict.fromkeys(waiting)
        sources: list[cst.BaseExpression] = []
        for made in waiting:
            if isinstance(made, cst.Call):
                sources += [argument.value for argument in made.args]
                if isinstance(made.func, cst.Attribute):
                    sources.append(made.func.value)
        origins = [model.value(source).origin for source in sources]
        waiting = [one for one in origins if one is not None and one not in found]
    return found


def training_loop(model: FileModel, call: CallSite) -> Loop | None:
    """The step loop that goes over the loader that a call makes."""
    return next((x for x in loops_over(model, call) if x.kind is LoopKind.STEP), None)
