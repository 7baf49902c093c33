"""XLA720: ``torch.load`` cannot restore tensors onto an XLA device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, OnXla
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._handed_over import extends_trainer

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
    """Find ``map_location`` that is an XLA device, or is one where the program runs on XLA."""
    if not model.is_xla:
        return
    for call in model.calls(*_LOADS):
        place = call.argument(_LOADS[call.name or ""], "map_location")
        if place is None or not (_is_xla(model, place) or _is_of_framework(model, place)):
            continue
        yield model.problem(
            place,
            "torch.load cannot restore tensors onto an XLA device: it raises RuntimeError",
            suggestion='map_location="cpu"; load_state_dict copies to where the parameters are',
            fix=model.fix("Load to the CPU", model.replace(place, '"cpu"'), safe=False),
        )


def _is_xla(model: FileModel, node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.SimpleString):
        text = model.literal(node)
        return isinstance(text, str) and text.startswith("xla")
    value = model.value(node)
    # A parameter of that name may be the CPU; what asks for the device in sight is none there.
    made = value.origin is not None and model.on_xla(node) is not OnXla.NO
    return value.kind is Kind.DEVICE and (value.certain or made)


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
