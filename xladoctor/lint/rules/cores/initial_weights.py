"""XLA426: each core starts from weights of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Kind, LoopKind
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import insert_behind, line_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, every_core
from xladoctor.lint.rules._equal import Seed, drawn_alike, equal_weights, seeded
from xladoctor.lint.rules._exact import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Guard, Problem

_ADVICE = "xm.broadcast_master_param(model) after the move to the device, on all cores"
#: Calls that send what the master has to the others.
_SENT = re.compile(r"broadcast|sync_module|DistributedDataParallel|FullySharded")


@rule("XLA426")
def initial_weights(model: FileModel) -> Iterator[Problem]:
    """Find models that every core makes at random, and weights that only the master loads."""
    if not model.is_xla or not model.multi_core or model.frameworks:
        return
    if not any(loop.kind is LoopKind.STEP for loop in model.loops):
        return
    yield from _loaded_alone(model)
    if equal_weights(model):
        return
    seeds = list(seeded(model))
    for call in model.calls():
        made = _makes_model(model, call) or _drawn_apart(model, call, seeds)
        entry = every_core(model, call.node) if made else None
        if entry is not None and not drawn_alike(model, call, seeds):
            yield model.problem(
                call.node,
                "every core draws its own random weights here; gradients are averaged, weights "
                "never, so the cores train different models from the first step on",
                suggestion=_ADVICE,
                related=entry_places(model, entry),
                fix=_fix(model, call),
            )


def _loaded_alone(model: FileModel) -> Iterator[Problem]:
    """``if xm.is_master_ordinal(): model.load_state_dict(...)`` before the training, for good."""
    loading = list(model.methods("load_state_dict"))
    if not loading or any(_sends(model, call) for call in model.calls()):
        return
    for call in loading:
        guard = model.master_only(call.node)
        entry = model.on_every_core(call.node)
        if guard is None or entry is None or call.receiver is None:
            continue
        if model.value(call.receiver).kind is not Kind.MODEL or not _trained_after(
            model, call, guard
        ):
            continue
        yield model.problem(
            call.node,
            "only the master core loads these weights: the others start from what they have, and "
            "gradients are averaged, weights never",
            suggestion=f"load them on all cores, or {_ADVICE}",
            related=[model.place(guard.test, "the master core alone"), *entry_places(model, entry)],
        )


def _sends(model: FileModel, call: CallSite) -> bool:
    text = model.tree.text(call.node)
    return _SENT.search(model.tree.text(call.node.func)) is not None or (
        "all_reduce" in text and "param" in text
    )


def _trained_after(model: FileModel, call: CallSite, guard: Guard, depth: int = 2) -> bool:
    """Whether the training follows, and not under the same condition."""
    callers = model.callers(call.function) if call.function is not None and depth else ()
    if any(_trained_after(model, caller, guard, depth - 1) for caller in callers):
        return True
    return any(
        loop.kind in {LoopKind.STEP, LoopKind.EPOCH}
        and loop.function is call.function
        and in_order(model, call.node, loop.node)
        and not any(around.node is guard.node for around in model.guards(loop.node))
        for loop in model.loops
    )


def _drawn_apart(model: FileModel, call: CallSite, seeds: list[Seed]) -> bool:
    """``build_model(config).to(device)`` behind a seed of each core's own, whoever's it is."""
    if not any(
        seed.apart
        and seed.call.function is call.function
        and in_order(model, seed.call.node, call.node)
        for seed in seeds
    ):
        return False
    value = model.value(call.node)
    if call.method != "to" or value.kind is not Kind.MODEL or not value.on_device:
        return False
    if isinstance(call.receiver, cst.Call):
        return _draws(model, call.receiver)
    if not isinstance(call.receiver, cst.Name):
        return False
    bindings = model.bindings(call.receiver.value, call.receiver)
    return any(
        isinstance(item.node, cst.Call)
        and (model.call(item.node).method or _plain(item.node))[:1].isupper()
        and _draws(model, item.node)
        for item in bindings
    )


def _draws(model: FileModel, node: cst.Call) -> bool:
    """Whether a call may make a model of another file with weights drawn at random."""
    made = model.call(node)
    pretrained = made.method == "from_pretrained" or _given(model, made, "pretrained", "weights")
    return not pretrained and not isinstance(made.target, Class)


def _plain(node: cst.Call) -> str:
    return node.func.value if isinstance(node.func, cst.Name) else ""


def _makes_model(model: FileModel, call: CallSite) -> bool:
    if not isinstance(call.target, Class):
        return False
    if (
        call.function is not None
        and call.function.owner is not None
        and _is_model(model, call.function.owner)
    ):
        return False  # a part of another model: that one is told, where it is made
    return _is_model(model, call.target)


def _is_model(model: FileModel, cls: Class) -> bool:
    bases = {(model.name(base) or "") for base in cls.bases}
    return "torch.nn.Module" in bases and bool(cls.methods) and not _only_pretrained(model, cls)


def _only_pretrained(model: FileModel, cls: Class) -> bool:
    """Whether all that a model is made of comes with its weights."""
    maker = cls.methods.get("__init__")
    if maker is None:
        return False
    calls = [call for call in model.calls() if call.function is maker]
    loads = any(
        call.method == "from_pretrained" or _given(model, call, "pretrained", "weights")
        for call in calls
    )
    return loads and not any(
        (call.name or "").startswith("torch.nn.")
        or (isinstance(call.target, Class) and _is_model(model, call.target))
        for call in calls
    )


def _given(model: FileModel, call: CallSite, *keywords: str) -> bool:
    values = (call.keywords.get(keyword) for keyword in keywords)
    return any(value is not None and model.literal(value) not in (None, False) for value in values)


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
