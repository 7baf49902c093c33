"""Batches of a plain loader that go into a model on the device as they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, LoopKind, OnXla, walk
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules._reads import not_here, snippet
from xladoctor.lint.rules._sources import gone_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

#: What moves a batch, in a model's own methods or in a loop.
_MOVES = frozenset({"to", "cuda", "xla", "to_device", "send_cpu_data_to_device", "prepare_input"})


def unmoved(model: FileModel) -> Iterator[Problem]:
    """``for images, labels in DataLoader(...): model(images)`` of a model on the device.

    One finding for each loop. Nothing where anything moves in the loop, or in the model itself.
    """
    for loop in model.loops:
        if loop.implicit or loop.kind not in {LoopKind.STEP, LoopKind.EVAL}:
            continue
        over = loop.iterates
        if over.kind is not Kind.LOADER or not over.certain or over.roads:
            continue
        if not isinstance(loop.node, cst.For) or _moves_in(model, loop.node):
            continue
        if loop.over is not None and _is_made_anew(model, loop.over):
            continue
        found = next(_given(model, loop, loop.node), None)
        if found is not None:
            call, batch = found
            yield model.problem(
                call.node,
                f"{snippet(model, batch)} stays on the host, as the loader gave it, and the model "
                "is on the device: this raises RuntimeError",
                suggestion="go over pl.MpDeviceLoader(loader, device), or move it: "
                "batch.to(device)",
                related=[model.place(loop.node, "a plain loader")],
            )


def _is_made_anew(model: FileModel, over: cst.BaseExpression) -> bool:
    """Whether a function of the program stands between: ``tqdm(on_device(loader))``."""
    return any(
        isinstance(one, cst.Call) and isinstance(model.call(one).target, Function)
        for one in gone_over(model, over)
    )


def _given(
    model: FileModel, loop: Loop, node: cst.For
) -> Iterator[tuple[CallSite, cst.BaseExpression]]:
    """The calls of models on the device that are given a part of the batch."""
    batch = {*names_bound(node.target)}
    for call in model.calls_in(node.body):
        net = model.value(call.node.func)
        if net.kind is not Kind.MODEL or not net.on_device or net.roads:
            continue
        if call.function is not loop.function or not_here(model, call.node):
            continue
        if model.on_xla(call.node) is not OnXla.YES or _moves_itself(model, call):
            continue
        for argument in call.node.args:
            name = _name_of(argument.value)
            if name is not None and name.value in batch and _as_it_came(model, name, node):
                yield call, argument.value


def _name_of(node: cst.BaseExpression) -> cst.Name | None:
    """``images`` and ``batch["images"]``."""
    while isinstance(node, cst.Subscript):
        node = node.value
    return node if isinstance(node, cst.Name) else None


def _as_it_came(model: FileModel, name: cst.Name, node: cst.For) -> bool:
    """Whether a name holds nothing but what the loop bound it to, on no device in sight."""
    value = model.value(name)
    if value.holds_device_tensor or value.made_of_device:
        return False
    target, inside = {*walk(node.target)}, {*walk(node)}
    bound = (one.node for one in model.bindings(name.value, name))
    return all(one in target for one in bound if one in inside)


def _moves_itself(model: FileModel, call: CallSite) -> bool:
    """Whether a class of the program moves what its models are given."""
    value = model.value(call.node.func)
    classes = [value.instance.cls] if value.instance is not None else [*value.classes]
    return any(_moves_in(model, cls.node) for cls in classes)


def _moves_in(model: FileModel, node: cst.CSTNode) -> bool:
    return any(
        isinstance(part, cst.Call) and model.call(part).last in _MOVES for part in walk(node)
    )
