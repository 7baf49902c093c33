"""XLA426: each core starts from weights of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Function, Kind, LoopKind
from xladoctor.lint.model.loops import opposed
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import insert_behind, line_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, every_core, is_forked
from xladoctor.lint.rules._drawn import (
    makers_of,
    makes_model,
    may_draw,
    never_asked,
    surely_draws,
)
from xladoctor.lint.rules._equal import Seed, equal_weights, last_seed, seeded
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._handed_over import makers_handed
from xladoctor.lint.rules._heads import draws_adapters, new_head
from xladoctor.lint.rules._loaded_alone import SENDS, loaded_alone
from xladoctor.lint.rules._read_again import made_anew
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, Entry, FileModel, Problem

#: Names of what computes a loss.
_LOSS = re.compile(r"loss|criterion|objective", re.IGNORECASE)
#: Methods of frameworks that go over data, and those that may train with it.
_EVALUATES = frozenset({"evaluate", "predict"})
_TRAINS = frozenset({"train", "fit", "train_model", "training_step", "learn"})
#: What shards a model, by a word of its name: ``apply_fsdp(net)`` of a file nobody has read.
_FSDP = "fsdp"
#: Words of a function that trains.
_IN_ITS_NAME = frozenset({"train", "training", "fit"})


@rule("XLA426")
def initial_weights(model: FileModel) -> Iterator[Problem]:
    """Find models that every core makes at random, and weights that only the master loads."""
    if not model.is_xla or not model.multi_core or "lightning" in model.frameworks:
        return
    handed = makers_handed(model)
    if not handed and not _trains_anywhere(model):
        return
    alone = list(loaded_alone(model))
    yield from (problem for _, problem in alone)
    # Weights that are loaded are the same on all cores once all of them load.
    if any(sure for sure, _ in alone) or equal_weights(model):
        return
    seeds = list(seeded(model))
    told: set[cst.CSTNode] = set()
    for call in model.calls():
        made = (
            (makes_model(model, call) and not _told_by_callers(model, call))
            or _made_in_helper(model, call)
            or _made_elsewhere(model, call, seeds, handed)
            or call.node in handed.values()
        )
        if not made:
            yield from _made_early(model, call, seeds)
            continue
        entry = every_core(model, call.node, in_turn=True)
        if entry is None or never_asked(model, call):
            continue
        seed = last_seed(model, call, seeds)
        if (seed is not None and not seed.apart) or _loaded_then(model, call):
            continue
        if _only_evaluates(model, entry):
            continue
        makers = [*makers_of(model, call.receiver)] if call.method == "to" else [call.node]
        heads = (new_head(model, model.call(maker)) for maker in makers)
        head = next((node for node in heads if node is not None and model.is_here(node)), None)
        drawn = _what_is_drawn(model, head)
        if seed is None and is_forked(model, entry):
            drawn += " (forked processes draw alike, but the two cores of one on TPU v2 and v3 not)"
        at = _handed_in(model, call, makers) if head is None else head
        if at in told:
            continue
        told.add(at)
        yield model.problem(
            at,
            f"{drawn}; gradients are averaged, weights never, so the cores train different models "
            "from the first step on",
            suggestion=SENDS,
            related=entry_places(model, entry),
            fix=_fix(model, call) if every_core(model, call.node) is not None else None,
        )


def _made_early(model: FileModel, call: CallSite, seeds: list[Seed]) -> Iterator[Problem]:
    """What is moved was made at the top of the file, or before the seed."""
    top = _made_at_the_top(model, call, seeds)
    if top is not None and (entry := every_core(model, call.node, in_turn=True)) is not None:
        yield model.problem(
            call.node,
            "each spawned process reads the file again and draws random weights of its own at "
            "the top of it; gradients are averaged, weights never",
            suggestion=SENDS,
            related=[model.place(top, "the model is made here"), *entry_places(model, entry)],
            fix=_fix(model, call),
        )
        return
    late = _made_before_the_seed(model, call, seeds)
    if late is not None and (entry := every_core(model, late.node, in_turn=True)) is not None:
        yield model.problem(
            late.node,
            "every core draws its own random weights here, before the seed that would make "
            "them equal; gradients are averaged, weights never",
            suggestion=SENDS,
            related=entry_places(model, entry),
        )


def _handed_in(model: FileModel, call: CallSite, makers: list[cst.Call]) -> cst.CSTNode:
    """Where a model is told that is drawn: where it is moved, or made and handed to what moves it.

    ``train(Net(64))``, of ``def train(net): net.to(device)``.
    """
    moved = call.receiver if call.method == "to" else None
    if not isinstance(moved, cst.Name) or not model.is_parameter(moved) or len(makers) != 1:
        return call.node
    return makers[0] if model.is_here(makers[0]) else call.node


def _what_is_drawn(model: FileModel, head: cst.CSTNode | None) -> str:
    if head is None:
        return "every core draws its own random weights here"
    adapters = isinstance(head, cst.Call) and draws_adapters(model.call(head))
    what = "adapters" if adapters else "last layers"
    return f"the {what} of this pretrained model are new, and every core draws its own"


def _made_in_helper(model: FileModel, call: CallSite) -> bool:
    """``net = wide_resnet()`` of another file, which makes the model and gives it back.

    It is told where it is called: there the weights are sent to all cores.
    """
    if not isinstance(call.target, Function) or model.is_here(call.target.node):
        return False
    made = [(model.file_with(maker), maker) for maker in makers_of(model, call.node)]
    return bool(made) and all(
        makes_model(home, home.call(maker)) and not _loaded_then(home, home.call(maker))
        for home, maker in made
    )


def _told_by_callers(model: FileModel, call: CallSite) -> bool:
    """Whether a model is given back to functions of other files alone."""
    callers = model.callers(call.function) if call.function is not None else ()
    return bool(callers) and all(
        not model.is_here(one.node) and call.node in makers_of(model, one.node) for one in callers
    )


def _only_evaluates(model: FileModel, entry: Entry) -> bool:
    """Whether what runs on every core goes over batches and takes no step with any of them."""
    if entry.function is None:
        return False
    reached = list(model.reached(entry.function.node))
    functions = {call.function for call in reached} | {entry.function}
    loops = [loop for part in (model, *model.linked) for loop in part.loops]
    kinds = {loop.kind for loop in loops if loop.function in functions and not loop.implicit}
    methods = {call.method for call in reached}
    # ``trainer.evaluate()`` of a framework, or of a copy of it in the project
    asked = bool(methods & _EVALUATES) and not methods & _TRAINS
    if LoopKind.STEP in kinds or not (asked or LoopKind.EVAL in kinds):
        return False
    steps = {"backward", "step"} & methods
    return not steps and all(model.value(x.node).kind is not Kind.OPTIMIZER for x in reached)


def _trains_anywhere(model: FileModel) -> bool:
    """Whether steps are taken here, or in a file that this one is linked to or takes its loop from.

    ``train_epoch(model, loader, optimizer)`` of a file that nobody has read: by its name, or since
    it is given batches and an optimizer.
    """
    parts = (model, *model.linked)
    if any(loop.kind is LoopKind.STEP for part in parts for loop in part.loops):
        return True
    if any(_FSDP in words(call.written) for call in model.calls()):
        return False  # each core keeps a part of its own weights, and no other core has that part
    for call in model.calls():
        given = [model.value(one.value) for one in call.node.args] if call.target is None else []
        if any(one.kind is Kind.OPTIMIZER for one in given) and (
            any(one.is_loader for one in given) or not _IN_ITS_NAME.isdisjoint(words(call.written))
        ):
            return True
    return False


def _made_elsewhere(
    model: FileModel, call: CallSite, seeds: list[Seed], handed: Mapping[cst.Call, cst.Call | None]
) -> bool:
    """``build_model(config).to(device)``: a model of another file that is trained here.

    Behind a seed of each core's own it is told whoever makes it. Without any seed it is told of
    a class alone (``Net(64).to(device)``), or of a function of this file that puts layers together:
    another one may well load what it makes. (A seed of each core's own that comes later makes
    nothing equal.)
    """
    value = model.value(call.node)
    if call.method != "to" or value.kind is not Kind.MODEL or not value.on_device:
        return False
    makers = [
        made for made in makers_of(model, call.receiver) if model.on_every_core(made) is not None
    ]
    if not _is_trained(model, call):
        return False
    seed = last_seed(model, call, seeds)
    if seed is not None and seed.apart:
        told = any(handed.get(maker) is not None for maker in makers)
        return not told and any(may_draw(model, maker) for maker in makers)
    if seed is not None or not all(seed.apart for seed in seeds):
        return False
    drawn = [maker for maker in makers if surely_draws(model, maker)]
    if any(draws_adapters(model.call(maker)) for maker in drawn):
        return True  # whatever they are put on
    return bool(drawn) and all(
        maker in drawn or _instead(model, maker, drawn[0]) for maker in makers
    )


def _instead(model: FileModel, maker: cst.Call, drawn: cst.Call) -> bool:
    """``Net.from_pretrained(path)`` in the other branch: where it runs not, weights are drawn."""
    return model.call(maker).method == "from_pretrained" and opposed(
        model.guards(maker), model.guards(drawn)
    )


def _made_before_the_seed(model: FileModel, call: CallSite, seeds: list[Seed]) -> CallSite | None:
    """``net = Net()`` and then the seed of all cores, before ``net.to(device)``."""
    value = model.value(call.node)
    if call.method != "to" or value.kind is not Kind.MODEL or not value.on_device:
        return None
    makers = [
        made for made in makers_of(model, call.receiver) if model.on_every_core(made) is not None
    ]
    made = model.call(makers[0]) if len(makers) == 1 else None
    if made is None or not surely_draws(model, made.node) or not _is_trained(model, call):
        return None
    if last_seed(model, made, seeds) is not None or _loaded_then(model, made):
        return None
    alike = [seed for seed in seeds if not seed.apart]
    late = bool(alike) and all(_runs_after(model, made, seed.call) for seed in alike)
    return made if late else None


def _made_at_the_top(model: FileModel, call: CallSite, seeds: list[Seed]) -> cst.Call | None:
    """``NET = xmp.MpModelWrapper(Net())`` at the top of a file that new processes read again."""
    value, moved = model.value(call.node), call.receiver
    if call.method != "to" or value.kind is not Kind.MODEL or not value.on_device:
        return None
    if isinstance(moved, cst.Name) and model.is_parameter(moved):
        return None  # ``xmp.spawn(train, args=(NET,))`` sends it to them
    makers = [*makers_of(model, moved)]
    own = all(
        made_anew(model, maker)
        and (surely_draws(model, maker) or makes_model(model, model.call(maker)))
        and ((seed := last_seed(model, model.call(maker), seeds)) is None or seed.apart)
        and not _loaded_then(model, model.call(maker))
        for maker in makers
    )
    return makers[0] if makers and own and _is_trained(model, call) else None


def _runs_after(model: FileModel, made: CallSite, later: CallSite, depth: int = 3) -> bool:
    """Whether a call runs after another one of the same file, in its function or what it calls."""
    if not model.is_here(later.node) or not model.is_here(made.node):
        return False
    if later.function is made.function:
        return in_order(model, made.node, later.node)
    callers = list(model.callers(later.function)) if later.function is not None and depth else []
    return bool(callers) and all(_runs_after(model, made, one, depth - 1) for one in callers)


def _loaded_then(model: FileModel, made: CallSite) -> bool:
    """``model = Net(); model.load_state_dict(...)`` in one branch: all cores load the same."""
    name = _bound(model, made)
    if name is None:
        return False
    if _is_copied_into(model, made, name):
        return True
    around = {(guard.node, guard.when) for guard in model.guards(made.node)}
    return any(
        call.receiver is not None
        and model.tree.text(call.receiver) == name
        and call.function is made.function
        and in_order(model, made.node, call.node)
        and all((guard.node, guard.when) in around for guard in model.guards(call.node))
        for call in model.methods("load_state_dict")
    )


def _is_copied_into(model: FileModel, made: CallSite, name: str) -> bool:
    """``own = net.state_dict()`` and then ``own[key].copy_(other[key])``, as nanoGPT does."""
    states = [
        bound
        for call in model.methods("state_dict")
        if call.function is made.function
        and call.receiver is not None
        and model.tree.text(call.receiver) == name
        and (bound := _bound(model, call)) is not None
    ]
    return any(
        call.function is made.function
        and isinstance(call.receiver, cst.Subscript)
        and model.tree.text(call.receiver.value) in states
        and in_order(model, made.node, call.node)
        for call in model.methods("copy_")
    )


def _bound(model: FileModel, made: CallSite) -> str | None:
    """What ``net = ...`` binds the result of a call to, as written."""
    line = line_of(model, made.node)
    if line is None or not isinstance(line.body[0], cst.Assign):
        return None
    return model.tree.text(line.body[0].targets[0].target)


def _is_trained(model: FileModel, moved: CallSite) -> bool:
    """Whether ``net.to(device)`` is trained: an optimizer, or a function of the program, gets it.

    Also by another name that is given to it in the same function (``self.net = net``).

    What computes a loss has no weights as a rule.
    """
    bound = _bound(model, moved)
    names = set() if bound is None else {bound.strip()}
    if moved.receiver is not None and not isinstance(moved.receiver, cst.Call):
        names.add(model.tree.text(moved.receiver).strip())
    if any(_LOSS.search(name) for name in names):
        return False
    names |= {
        model.tree.text(target.target).strip()
        for line in model.nodes(cst.Assign)
        if model.function_of(line) is moved.function
        and model.tree.text(line.value).strip() in names
        for target in line.targets
    }
    return any(_trains(model, call, names) for call in model.calls())


def _trains(model: FileModel, call: CallSite, names: set[str], depth: int = 3) -> bool:
    """Whether a call asks for the parameters, or hands the model to what does."""
    if call.method in {"parameters", "named_parameters"} and call.receiver is not None:
        return model.tree.text(call.receiver).strip() in names
    given = [x.value for x in call.node.args if model.tree.text(x.value).strip() in names]
    maker = call.target
    if isinstance(maker, Class):
        maker = maker.methods.get("__init__")
    if maker is None or not given or depth == 0:
        return bool(given) and "optim" in call.last.lower()
    known = {name for name in maker.arguments if call.given_to(maker, name) in given}
    known |= {f"self.{name}" for name in known if maker.is_bound}
    inner = [other for other in model.calls() if _is_within(other.function, maker)]
    return any(_trains(model, other, known, depth - 1) for other in inner)


def _is_within(function: Function | None, maker: Function) -> bool:
    """Whether a function is the maker, inside of it, or of the class that it makes objects of."""
    if function is None:
        return False
    same_class = maker.name == "__init__" and function.owner is maker.owner
    return function is maker or function.outer is maker or same_class


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """Send the first core's weights to all, behind ``model = Net().to(device)``."""
    line = line_of(model, call.node)
    written = spell(model, call.node, "torch_xla.core.xla_model.broadcast_master_param")
    if line is None or written is None or not isinstance(line.body[0], cst.Assign):
        return None
    statement = line.body[0]
    target = statement.targets[0].target
    moved = statement.value
    if len(statement.targets) != 1 or not isinstance(target, cst.Name):
        return None
    if not isinstance(moved, cst.Call) or model.call(moved).method != "to":
        return None
    spelled, added = written
    behind = insert_behind(model, line, f"{spelled}({target.value})")
    return model.fix("Start all cores from the same weights", behind, added, safe=False)
