"""XLA325: flash attention inside of a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_KERNEL = "torch_xla.experimental.custom_kernel.flash_attention"
_SCANS = (
    "torch_xla.experimental.scan.scan",
    "torch_xla.experimental.scan_layers.scan_layers",
)


@rule("XLA325")
def kernel_in_scan(model: FileModel) -> Iterator[Problem]:
    """Find scans over SPMD layers in files whose layers call the kernel in their ``forward``."""
    if not model.spmd:
        return
    kernel = next(
        (
            call
            for call in model.calls(_KERNEL)
            if call.function is not None
            and call.function.owner is not None
            and model.is_module(call.function.owner)
        ),
        None,
    )
    if kernel is None:
        return
    for call in model.calls(*_SCANS):
        yield model.problem(
            call.node,
            "flash attention inside of a scan over sharded layers has given NaN and another "
            "result each time",
            suggestion="scaled_dot_product_attention in the layers that are scanned, or a loop "
            "over the layers",
            related=[model.place(kernel.node, "the layers call the kernel here")],
        )
