"""XLA902: what Lightning does on XLA devices is done a second time by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.frameworks import LIGHTNING_TRAINER
from xladoctor.lint.rewrites.moves import remove_definition
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import reads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Edit, Fix
    from xladoctor.lint.model import CallSite, FileModel, Function, Problem

#: What runs training_step and the backward pass in an overridden optimizer_step.
_CLOSURES = frozenset({"optimizer_closure", "second_order_closure", "closure"})
_BASES = frozenset({"LightningModule", "LightningDataModule"})
#: Methods of the Trainer that are given loaders.
_RUNS = ("fit", "validate", "test", "predict")
_XM = "torch_xla.core.xla_model."
_BY_HAND = {
    f"{_XM}optimizer_step": "reduces the gradients and steps",
    f"{_XM}mark_step": "ends the graph of each step",
    "torch_xla.sync": "ends the graph of each step",
    "torch_xla.distributed.parallel_loader.MpDeviceLoader": "wraps loaders for the device",
    "torch_xla.distributed.parallel_loader.ParallelLoader": "wraps loaders for the device",
}


@rule("XLA902")
def lightning_manual_xla(model: FileModel) -> Iterator[Problem]:
    """Find step protocol of torch_xla in methods of Lightning's modules."""
    if "lightning" not in model.frameworks:
        return
    for call in model.calls(*_BY_HAND):
        if _in_module(model, call.function):
            name = (call.name or "").rpartition(".")[2]
            yield model.problem(
                call.node,
                f"Lightning's XLA strategy {_BY_HAND[call.name or '']} by itself: {name} does it "
                "a second time",
                suggestion="leave it out; the Trainer takes care of it",
                fix=_fix(model, call),
            )
    yield from _moves_to_one_core(model)
    yield from _fed_by_hand(model)


def _fed_by_hand(model: FileModel) -> Iterator[Problem]:
    """``trainer.fit(net, pl.MpDeviceLoader(loader, device))``.

    Lightning puts a sampler into a DataLoader alone (2.6, trainer/connectors/data_connector.py,
    ``_prepare_dataloader``), and leaves device loaders as they are (strategies/xla.py).
    """
    told: set[cst.CSTNode] = set()
    for call in model.methods(*_RUNS):
        if call.receiver is None or model.value(call.receiver).type_name != LIGHTNING_TRAINER:
            continue
        for argument in call.node.args:
            value = model.value(argument.value)
            ways = value.roads or (value,)
            made = next((one.origin for one in ways if one.kind is Kind.DEVICE_LOADER), None)
            if not isinstance(made, cst.Call) or made in told or not model.is_here(made):
                continue
            if model.call(made).name not in _BY_HAND:
                continue
            told.add(made)
            yield model.problem(
                made,
                "Lightning puts a DistributedSampler into a plain DataLoader alone: with this one "
                "every core goes over all the data",
                suggestion="hand over the DataLoader as it is: the Trainer shares it out, and "
                "makes the device loader of each core",
                related=[model.place(call.node, "handed to the Trainer here")],
            )


def _moves_to_one_core(model: FileModel) -> Iterator[Problem]:
    """``x.to(device)`` in a step, with a device that the module asked for: one for all cores."""
    moves = {}
    for call in model.methods("to"):
        device = call.argument(0, "device")
        if not isinstance(device, cst.Name) or not _in_module(model, call.function):
            continue
        bindings = model.bindings(device.value, device)
        made = bindings[0].node if len(bindings) == 1 else None
        if made is None or model.function_of(made) is not None:
            continue
        if model.value(device).kind is Kind.DEVICE:
            moves[call] = (device, made)
    for call, (device, made) in moves.items():
        yield model.problem(
            call.node,
            "Lightning moves each batch to its core's device: this moves it on to the one device "
            "that the module asked for, before the cores were started",
            suggestion="leave it out, or write .to(self.device)",
            related=[model.place(made, "asked for here")],
            fix=_device_fix(model, device, {move.node for move in moves}),
        )


def _device_fix(model: FileModel, device: cst.Name, moves: set[cst.Call]) -> Fix | None:
    """Leave out all moves to the module's device, and the device if nothing else needs it."""
    bindings = model.bindings(device.value, device)
    edits: list[Edit | None] = []
    for use in reads(model, device):
        parent = model.parent(use)
        move = model.parent(parent) if isinstance(parent, cst.Arg) else None
        if not isinstance(move, cst.Call) or move not in moves or len(move.args) != 1:
            return None  # needed elsewhere
        edits.append(_without_move(model, move))
    edits.append(model.remove_statement(bindings[0].node))
    return model.fix("Leave it to Lightning", *edits, safe=False)


def _without_move(model: FileModel, move: cst.Call) -> Edit | None:
    receiver = model.call(move).receiver
    if receiver is None:
        return None
    text = model.tree.text(receiver).strip()
    parent = model.parent(move)
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = parent.targets[0].target
        if is_name(target, text):
            return model.remove_statement(move)
    return model.replace(move, text)


def _in_module(model: FileModel, function: Function | None) -> bool:
    owners = (one.owner for one in (function.around if function is not None else ()))
    return any(owner is not None and model.bases(owner) & _BASES for owner in owners)


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """Delete ``xm.mark_step()``, and an ``optimizer_step`` that does nothing else; unsafe.

    Elsewhere ``xm.optimizer_step(optimizer)`` becomes ``optimizer.step()``.
    """
    name = (call.name or "").rpartition(".")[2]
    if name in {"mark_step", "sync"} and isinstance(model.parent(call.node), cst.Expr):
        return model.fix("Leave it out", model.remove_statement(call.node), safe=False)
    if name != "optimizer_step" or len(call.positional) != 1 or call.keywords:
        return None
    function = call.function
    if function is not None and isinstance(function.node, cst.FunctionDef):
        calls = [part for part in walk(function.node.body) if isinstance(part, cst.Call)]
        closure = [c for c in calls if model.tree.text(c.func).strip() in _CLOSURES]
        if function.name == "optimizer_step" and len(calls) == len(closure) + 1:
            return model.fix(
                "Leave it to Lightning", remove_definition(model, function), safe=False
            )
    optimizer = model.tree.text(call.positional[0]).strip()
    if not isinstance(call.positional[0], cst.Name | cst.Attribute):
        return None
    edit = model.replace(call.node, f"{optimizer}.step()")
    return model.fix("Leave the reduction to Lightning", edit, safe=False)
