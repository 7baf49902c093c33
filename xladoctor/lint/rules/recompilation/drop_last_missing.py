"""XLA203: the training loader keeps a smaller last batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.turns import last_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._cores import differs
from xladoctor.lint.rules._dataset_sizes import divides, drops_itself
from xladoctor.lint.rules._endless import cut_to_batches, endless
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._forwarded import forwarded
from xladoctor.lint.rules._given import all_given, given
from xladoctor.lint.rules._handed_over import is_accelerator
from xladoctor.lint.rules._loaders import (
    DATA_LOADER,
    batches_of,
    bound_name,
    is_of_evaluation,
    loops_by_callers,
    loops_over,
    says_evaluation,
)
from xladoctor.lint.rules._short_batches import leaves_short_ones_out
from xladoctor.lint.rules._sliced_batches import sliced_batches
from xladoctor.lint.rules._sources import sources
from xladoctor.lint.rules._webdatasets import short_last_ones
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Function, Loop, Problem

#: Words of what is for training, and samplers that nothing else has.
_TRAINING = frozenset({"train", "training"})
_DRAWING = frozenset(
    f"torch.utils.data.{module}{name}"
    for module in ("", "sampler.")
    for name in ("RandomSampler", "WeightedRandomSampler")
)
#: What is said of a loader.
_MESSAGE = (
    "the last batch of an epoch may be smaller: a new shape, so the whole step is compiled "
    "a second time"
)
#: Functions that hand on whether a loader keeps its last batch.
_DEPTH = 3
#: Methods that a framework asks for the loader of its training.
_HOOKS = frozenset({"train_dataloader", "get_train_dataloader"})


@rule("XLA203")
def drop_last_missing(model: FileModel) -> Iterator[Problem]:
    """Find training loaders on XLA devices without ``drop_last=True``."""
    if not model.is_xla or _fills_up(model):
        return
    yield from sliced_batches(model)
    for call in short_last_ones(model):
        assert isinstance(call.node.func, cst.Attribute)
        yield model.problem(
            call.node.func.attr,
            "WebDataset keeps a smaller last batch of each worker: a new shape, so the whole step "
            "is compiled a second time",
            suggestion="give partial=False",
        )
    yield from _forwarded(model)
    for call in model.calls(DATA_LOADER):
        if not _keeps_short_batch(model, call):
            continue
        loops = loops_over(model, call) or _loops_of_functions(model, call)
        training = next((loop for loop in loops if loop.kind is LoopKind.STEP), None)
        if training is None and (loops or not _for_training(model, call)):
            continue
        if training is None and (
            says_evaluation(model, call.node)
            or _is_looked_at(model, call)
            or _is_forgotten(model, call)
        ):
            continue
        if divides(model, call) or endless(model, call) or cut_to_batches(model, call):
            continue
        if drops_itself(model, call):
            continue
        if training is not None and (
            _leaves_first(model, training) or leaves_short_ones_out(model, training)
        ):
            continue
        if loops and all(_goes_elsewhere(model, loop) for loop in loops):
            continue
        related = [model.place(training.node, "the step loop over it")] if training else []
        batches = _batches(model, call)
        yield model.problem(
            call.node if batches is None else batches.node,
            _MESSAGE
            + (", and cores with fewer batches can hang" if _own_part(model, call) else ""),
            suggestion="give drop_last=True",
            related=related,
            fix=_fix(model, call) if batches is None else None,
        )


def _forwarded(model: FileModel) -> Iterator[Problem]:
    """``batches(rows, num_workers=4)``, of which ``DataLoader(rows, 8, **more)`` makes a loader."""
    for one in forwarded(model):
        batch = one.made.argument(1, "batch_size") or one.settings.get("batch_size")
        drop = one.made.argument(8, "drop_last") or one.settings.get("drop_last")
        if batch is None or constant(model, batch) in (1, None) or "batch_sampler" in one.settings:
            continue
        if drop is not None and model.literal(drop) is not False:
            continue
        if divides(model, one.made) or endless(model, one.made) or drops_itself(model, one.made):
            continue
        yield model.problem(
            one.call.node,
            _MESSAGE,
            suggestion="give drop_last=True, which is handed on",
            related=[
                model.place(one.made.node, "the loader"),
                model.place(one.loop.node, "the step loop over it"),
            ],
        )


def _loops_of_functions(model: FileModel, call: CallSite) -> list[Loop]:
    """The loops of ``train_epoch(loader)``, if nobody has that function evaluate too."""
    if says_evaluation(model, call.node):
        return []
    loops = dict.fromkeys(loop for loop, _ in loops_by_callers(model, call))
    return [
        loop
        for loop in loops
        if loop.kind is LoopKind.STEP and loop.function is not None
        if not any(_asks_to_evaluate(model, one) for one in model.callers(loop.function))
    ]


def _asks_to_evaluate(model: FileModel, call: CallSite) -> bool:
    """``run_epoch(model, valid_loader)``, ``run_epoch(model, loader, train=False)``."""
    given_here = [argument.value for argument in call.node.args]
    return is_of_evaluation(*(last_name(node).lower() for node in given_here)) or any(
        model.literal(node) is False for node in given_here
    )


def _is_fitted(model: FileModel, call: CallSite) -> bool:
    """``trainer.fit(net, DataLoader(rows, 32))`` of Lightning."""
    argument = model.parent(call.node)
    fit = model.parent(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(fit, cst.Call) or "lightning" not in model.frameworks:
        return False
    site = model.call(fit)
    return site.method == "fit" and site.argument(1, "train_dataloaders") is call.node


def _is_looked_at(model: FileModel, call: CallSite) -> bool:
    """``batch = next(iter(loader))`` in a notebook that binds the name anew before it trains."""
    line = model.parent(call.node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    if not isinstance(target, cst.Name) or call.function is not None:
        return False
    bound = (item.node for item in model.bindings(target.value, target))
    order = model.tree.order
    later = [order[node] for node in bound if order.get(node, -1) > order[call.node]]
    looks = (one.positional[0] for one in model.calls("builtins.iter") if one.positional)
    rows = [order[node] for node in looks if is_name(node, target.value)]
    return bool(later) and any(order[call.node] < row < min(later) for row in rows)


def _is_forgotten(model: FileModel, call: CallSite) -> bool:
    """``loader = DataLoader(...)`` in a function that does not name it again: it is never used."""
    line = model.parent(call.node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    if not isinstance(target, cst.Name) or call.function is None:
        return False
    inside = model.within(call.function.node, cst.Name)
    return all(node is target for node in inside if node.value == target.value)


def _fills_up(model: FileModel) -> bool:
    """Whether Accelerate prepares the loaders: on several cores it fills up the last batch.

    Known from Accelerate 1.15, ``data_loader.BatchSamplerShard``: ``even_batches`` is the default.
    """
    if "accelerate" not in model.frameworks:
        return False
    options = (call.keywords.get("even_batches") for call in model.calls())
    if any(given is not None and model.literal(given) is False for given in options):
        return False
    return any(is_accelerator(model, call) for call in model.methods("prepare"))


def _keeps_short_batch(model: FileModel, call: CallSite) -> bool:
    named = given(model, call)
    if not all_given(model, call):
        return False
    if "batch_sampler" in named:
        batches = _batches(model, call)
        kept = None if batches is None else batches.argument(2, "drop_last")
        return kept is not None and _is_false(model, kept, _DEPTH)
    batch = call.argument(1, "batch_size") or named.get("batch_size")
    if batch is None or constant(model, batch) in (1, None):
        return False
    drop = call.argument(8, "drop_last") or named.get("drop_last")
    return drop is None or _is_false(model, drop, _DEPTH)


def _batches(model: FileModel, call: CallSite) -> CallSite | None:
    """``BatchSampler(sampler, 16, drop_last=False)`` of ``DataLoader(data, batch_sampler=...)``."""
    made = given(model, call).get("batch_sampler")
    return None if made is None else batches_of(model, made)


def _is_false(model: FileModel, node: cst.BaseExpression, depth: int) -> bool:
    """``False``, also as a setting, or as a parameter's default that no caller changes."""
    value = constant(model, node)
    if value is not NotImplemented or not isinstance(node, cst.Name):
        return value is False
    function = model.function_of(node)
    if function is None or node.value not in function.parameters:
        return [one.value for one in assigned(model, node) if isinstance(one, cst.Name)] == [
            "False"
        ]
    if depth == 0:
        return False
    calls = model.callers(function)
    values = [one.given_to(function, node.value) or function.default(node.value) for one in calls]
    return bool(values) and all(
        value is not None and not one.has_star and _is_false(model, value, depth - 1)
        for one, value in zip(calls, values, strict=True)
    )


def _goes_elsewhere(model: FileModel, loop: Loop) -> bool:
    """Whether a loop moves its batches to a device that is certainly none of XLA's."""
    calls = [call for call in model.reached(loop.node) if not call.name]
    if any(_is_put_on_cuda(model, loop, call) for call in calls):
        return True
    moved = [call for call in calls if call.method == "to"]
    given = (call.argument(0, "device") for call in moved)
    devices = [model.value(device) for device in given if device is not None]
    other = [value for value in devices if value.kind is Kind.OTHER_DEVICE and value.certain]
    return bool(other) and not any(value.kind is Kind.DEVICE for value in devices)


def _is_put_on_cuda(model: FileModel, loop: Loop, call: CallSite) -> bool:
    """``x = x.cuda()`` of what the loop goes over, whatever device it may run on."""
    if call.method != "cuda" or not isinstance(call.receiver, cst.Name):
        return False
    here = isinstance(loop.node, cst.For) and model.loop(call.node) is loop
    targets = walk(loop.node.target) if isinstance(loop.node, cst.For) and here else ()
    named = any(is_name(part, call.receiver.value) for part in targets)
    return named and not any(model.loop(guard.node) is loop for guard in model.guards(call.node))


def _own_part(model: FileModel, call: CallSite) -> bool:
    """Whether the data set is this core's part, so that the cores may have unequal numbers.

    A ``DistributedSampler`` gives all cores equally many, and so does the whole data set.
    """
    dataset = call.argument(0, "dataset")
    if dataset is None or not model.multi_core or "sampler" in call.keywords:
        return False
    return any(differs(model, node) for node in (dataset, *model.assigned_to(dataset)))


def _for_training(model: FileModel, call: CallSite) -> bool:
    """Whether a loader whose loop is not in sight says that it is for training."""
    shuffle = call.argument(2, "shuffle")
    if shuffle is not None and (model.literal(shuffle) is True or _asks_for_training(shuffle)):
        return True
    if "train" in bound_name(model, call.node) or _draws(model, call) or _is_fitted(model, call):
        return True
    # ``loader = DataLoader(...); return loader`` in what Lightning or a Trainer asks for it.
    function = call.function
    if function is None:
        return False
    if function.name in _HOOKS and function.owner is not None:
        return True
    if "train" in words(function.name) and _is_given_back(model, call, function):
        return True
    # ``train_loader = make_loader(data, is_train=True)``, of a helper that gives it back.
    asked = any(_asks_to_train(model, one, function, shuffle) for one in model.callers(function))
    return asked and _is_given_back(model, call, function)


def _asks_to_train(
    model: FileModel, call: CallSite, function: Function, shuffle: cst.BaseExpression | None
) -> bool:
    """Whether who calls a helper wants a loader for training, by its name or by what it gives.

    ``def train_dataloader(self): return self.loader(self.rows, shuffle=True)``.
    """
    if "train" in bound_name(model, call.node):
        return True
    if not isinstance(shuffle, cst.Name) or not model.is_parameter(shuffle):
        return False
    given_there = call.given_to(function, shuffle.value)
    return given_there is not None and model.literal(given_there) is True


def _asks_for_training(shuffle: cst.BaseExpression) -> bool:
    """``shuffle=part == "train"``, ``shuffle=is_train``: what trains goes this way too."""
    named = (part.value for part in walk(shuffle) if isinstance(part, cst.Name | cst.SimpleString))
    return any(not words(name).isdisjoint(_TRAINING) for name in named)


def _draws(model: FileModel, call: CallSite) -> bool:
    """``sampler=RandomSampler(data)``, also where one of several processes has another."""
    sampler = call.keywords.get("sampler")
    made = sources(model, sampler) if sampler is not None else None
    return any(isinstance(one, cst.Call) and model.name(one.func) in _DRAWING for one in made or ())


def _is_given_back(model: FileModel, call: CallSite, function: Function) -> bool:
    """Whether a function gives back the loader that it makes, by itself or by a name."""
    return any(
        value is call.node or call.node in model.assigned_to(value) for value in returned(function)
    )


def _leaves_first(model: FileModel, loop: Loop) -> bool:
    """``if step > 1000: break`` on the loop's own count: such a loop stops within an epoch."""
    if not isinstance(loop.node, cst.For) or not isinstance(loop.node.target, cst.Tuple):
        return False
    counter = loop.node.target.elements[0].value
    return isinstance(counter, cst.Name) and any(
        isinstance(statement, cst.If)
        and _counts(model, statement.test, counter.value)
        and (
            isinstance(last_of(statement.body), cst.Break)
            or any(isinstance(x, cst.Return) for x in walk(statement.body, into_functions=False))
        )
        for statement in loop.node.body.body
    )


def _counts(model: FileModel, test: cst.BaseExpression, counter: str) -> bool:
    """Whether a condition compares a loop's counter with a number."""
    if not isinstance(test, cst.Comparison) or not isinstance(test.left, cst.Name):
        return False
    number = model.literal(test.comparisons[0].comparator)
    return test.left.value == counter and isinstance(number, int)


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    written = call.keywords.get("drop_last")
    if written is not None and model.literal(written) is not False:
        return None
    if call.has_star or (call.function is not None and len(model.callers(call.function)) > 1):
        return None  # may be given already; loaders for evaluation are made here too
    when = _shuffled_when(model, call)
    edit = (
        model.add_argument(call.node, f"drop_last={when}")
        if written is None
        else model.replace(written, when)
    )
    return model.fix(f"Add drop_last={when}", edit, safe=False)


def _shuffled_when(model: FileModel, call: CallSite) -> str:
    """``True``, or the condition of ``shuffle=(part == "train")``: one call for all loaders."""
    shuffle = call.keywords.get("shuffle")
    if shuffle is None or not _asks_for_training(shuffle) or _asks_for_sampler(shuffle):
        return "True"
    text = model.tree.text(shuffle).strip()
    bare = isinstance(shuffle, cst.Comparison) and not text.startswith("(")
    return f"({text})" if bare else text


def _asks_for_sampler(shuffle: cst.BaseExpression) -> bool:
    """``shuffle=train_sampler is None``: of a loader for training, whatever the answer."""
    named = (part.value for part in walk(shuffle) if isinstance(part, cst.Name))
    return any("sampler" in name.lower() or name == "None" for name in named)
