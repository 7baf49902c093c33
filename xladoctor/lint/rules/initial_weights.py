"""XLA426: each core starts from weights of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Kind, LoopKind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import differs, entry_places, every_core
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._imports import spell
from xladoctor.lint.rules._moves import insert_behind, line_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Guard, Problem

#: Calls after which the cores may have equal weights. A file that has one is left alone.
_EQUAL = re.compile(
    r"seed|broadcast|load(?!er)|pretrained|restore|resume|checkpoint|sync_module", re.IGNORECASE
)

_ADVICE = "xm.broadcast_master_param(model) after the move to the device, on all cores"
#: Calls that send what the master has to the others.
_SENT = re.compile(r"broadcast|sync_module|all_reduce|DistributedDataParallel|FullySharded")
#: What torch draws initial weights from.
_SEEDS = ("torch.manual_seed", "torch.random.manual_seed")


@rule("XLA426")
def initial_weights(model: FileModel) -> Iterator[Problem]:
    """Find models that every core makes at random, and weights that only the master loads."""
    if not model.is_xla or not model.multi_core or model.frameworks:
        return
    if not any(loop.kind is LoopKind.STEP for loop in model.loops):
        return
    yield from _loaded_alone(model)
    if any(_makes_equal(model, call) for call in model.calls()) or _wraps(model):
        return
    for call in model.calls():
        made = _makes_model(model, call) or _drawn_apart(model, call)
        entry = every_core(model, call.node) if made else None
        if entry is not None:
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
    if any(_SENT.search(model.tree.text(call.node.func)) for call in model.calls()):
        return
    for call in model.methods("load_state_dict"):
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


def _trained_after(model: FileModel, call: CallSite, guard: Guard) -> bool:
    """Whether the training follows, and not under the same condition."""
    return any(
        loop.kind in {LoopKind.STEP, LoopKind.EPOCH}
        and loop.function is call.function
        and in_order(model, call.node, loop.node)
        and not any(around.node is guard.node for around in model.guards(loop.node))
        for loop in model.loops
    )


def _makes_equal(model: FileModel, call: CallSite) -> bool:
    if _seeds_apart(model, call):
        return False
    target = call.target.name if call.target is not None else ""
    return _EQUAL.search(f"{call.name or ''} {call.method or ''} {target}") is not None


def _seeds_apart(model: FileModel, call: CallSite) -> bool:
    """``torch.manual_seed(42 + rank)``: each core draws other numbers, on purpose."""
    return call.name in _SEEDS and any(
        differs(model, argument.value) for argument in call.node.args
    )


def _drawn_apart(model: FileModel, call: CallSite) -> bool:
    """``build_model(config).to(device)`` behind such a seed, wherever the model's class is."""
    if call.method != "to" or not isinstance(call.receiver, cst.Call):
        return False
    value = model.value(call.node)
    return (
        value.kind is Kind.MODEL
        and value.on_device
        and not isinstance(model.call(call.receiver).target, Class)
        and any(
            seed.function is call.function and in_order(model, seed.node, call.node)
            for seed in model.calls(*_SEEDS)
            if _seeds_apart(model, seed)
        )
    )


def _wraps(model: FileModel) -> bool:
    """DDP and FSDP bring the weights of the first core to the others."""
    wrappers = ("DistributedDataParallel", "FullyShardedDataParallel", "MpModelWrapper")
    return any((call.name or "").endswith(wrappers) for call in model.calls())


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
    return "torch.nn.Module" in bases and bool(cls.methods)


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
