"""XLA503: operations of torchvision that run on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import costly_loop, loop_place, often

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Measured with torchvision 0.24: device-to-host copies and CPU kernels in every call.
_MEASURED = ("nms", "batched_nms", "remove_small_boxes", "roi_align", "deform_conv2d")
_MODELS = "torchvision.models.detection."
_NAMES = tuple(
    f"torchvision.ops.{module}{name}"
    for module in ("", "boxes.", "roi_align.")
    for name in _MEASURED
)


@rule("XLA503")
def detection_operation(model: FileModel) -> Iterator[Problem]:
    """Find detection operations and models of torchvision on device tensors in hot loops."""
    for call in model.calls(*_NAMES):
        if not any(model.value(item).is_device_tensor for item in call.positional):
            continue
        loop = costly_loop(model, call.node)
        if loop is not None:
            name = (call.name or "").rpartition(".")[2]
            yield model.problem(
                call.node,
                f"torchvision's {name} has no code for XLA devices: {often(loop)} its tensors go "
                "to the host, are computed there and come back",
                suggestion="do it after the step, on the host, for the few batches that need it",
                related=[loop_place(model, loop)],
            )
    yield from _models(model)


def _models(model: FileModel) -> Iterator[Problem]:
    """``fasterrcnn_resnet50_fpn()(images, targets)``: those operations, in each of its steps."""
    for call in model.calls():
        called = model.value(call.node.func)
        if called.kind is not Kind.MODEL or not (called.type_name or "").startswith(_MODELS):
            continue
        there = called.on_device or any(
            model.value(item).holds_device_tensor for item in call.positional
        )
        loop = costly_loop(model, call.node) if there else None
        if loop is not None:
            yield model.problem(
                call.node,
                f"torchvision's detection models read on the host {often(loop)}: they choose "
                "boxes by their scores (nms, roi_align, boolean masks), and every new number of "
                "boxes recompiles what follows",
                suggestion="take a model with a fixed number of boxes (DETR, or a detector that is "
                "written for TPUs)",
                related=[loop_place(model, loop)],
            )
