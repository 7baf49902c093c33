"""XLA720: ``torch.load`` cannot restore tensors onto an XLA device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, OnXla
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._handed_over import extends_trainer
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Function, Problem

_LOADS = {
    "torch.load": 1,
    "torch.hub.load_state_dict_from_url": 2,
    "torch.utils.model_zoo.load_url": 2,
}


_LOADERS = "torch_xla.distributed.parallel_loader."
_DEVICE_LOADERS = (f"{_LOADERS}ParallelLoader", f"{_LOADERS}MpDeviceLoader")


@rule("XLA720")
def load_onto_device(model: FileModel) -> Iterator[Problem]:
    """Find ``map_location`` that is an XLA device, on one road at least."""
    if not model.is_xla:
        return
    for call in model.calls(*_LOADS):
        place = call.argument(_LOADS[call.name or ""], "map_location")
        sure = place is not None and (_is_xla(model, place) or _is_of_framework(model, place))
        if place is None or not (sure or _may_be_xla(model, place)):
            continue
        yield model.problem(
            place,
            "torch.load cannot restore tensors onto an XLA device: it raises RuntimeError"
            + ("" if sure else f" where {snippet(model, place)} is one"),
            suggestion='map_location="cpu"; load_state_dict copies to where the parameters are',
            fix=model.fix("Load to the CPU", model.replace(place, '"cpu"'), safe=False),
        )


def _is_xla(model: FileModel, node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.SimpleString):
        text = model.literal(node)
        return isinstance(text, str) and text.startswith("xla")
    value = model.value(node)
    return value.kind is Kind.DEVICE and value.certain


def _may_be_xla(model: FileModel, node: cst.BaseExpression) -> bool:
    """A device that the program asks torch_xla for on one road, and takes another on the others."""
    if model.on_xla(node) is OnXla.NO:
        return False
    value = model.value(node)
    return any(
        road.kind is Kind.DEVICE
        and isinstance(road.origin, cst.Call)
        and (model.name(road.origin.func) or "").startswith("torch_xla.")
        for road in (value, *value.roads)
    )


def _is_of_framework(model: FileModel, node: cst.BaseExpression) -> bool:
    """``accelerator.device``, ``self.args.device`` of a Trainer: the core's, where XLA runs."""
    if not isinstance(node, cst.Attribute) or model.value(node).kind is not Kind.DEVICE:
        return False
    if model.on_xla(node) is OnXla.NO:
        return False
    holder = node.value
    made = model.value(holder).type_name or ""
    if made.startswith(("accelerate.", "transformers.")):
        return True
    function = model.function_of(node)
    if function is None:
        return False
    by_trainer = dotted_text(holder) == "self.args" and extends_trainer(model, function.owner)
    return by_trainer or _takes_batches(model, node, function)


def _takes_batches(model: FileModel, node: cst.Attribute, function: Function) -> bool:
    """``self.args.device`` of a copy of the Trainer, whose device loader is given that too."""
    text = dotted_text(node)
    for call in model.calls(*_DEVICE_LOADERS):
        home = call.function
        same = home is function or (home is not None and home.owner is function.owner is not None)
        given = call.argument(1, "device") or call.argument(1, "devices")
        parts = given.elements if isinstance(given, cst.List) else ()
        devices = [given, *(part.value for part in parts)]
        if same and any(one is not None and dotted_text(one) == text for one in devices):
            return True
    return False
