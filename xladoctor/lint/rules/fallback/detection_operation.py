"""XLA503: operations of torchvision that run on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import costly_loop, loop_place, often

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Measured with torchvision 0.24: device-to-host copies and CPU kernels in every call.
_MEASURED = ("nms", "batched_nms", "remove_small_boxes", "roi_align", "deform_conv2d")
_NAMES = tuple(
    f"torchvision.ops.{module}{name}"
    for module in ("", "boxes.", "roi_align.")
    for name in _MEASURED
)


@rule("XLA503")
def detection_operation(model: FileModel) -> Iterator[Problem]:
    """Find detection operations of torchvision on device tensors in hot loops."""
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
