"""XLA325: flash attention inside of a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import _scans, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_KERNEL = "torch_xla.experimental.custom_kernel.flash_attention"


@rule("XLA325")
def kernel_in_scan(model: FileModel) -> Iterator[Problem]:
    """Find scans over SPMD layers that run the kernel."""
    if not model.spmd:
        return
    for call in _scans.scans(model):
        given = call.argument(0, "fn") or call.keywords.get("layers")
        kernel = _scans.runs(model, given, (_KERNEL,))
        if kernel is None:
            continue
        yield model.problem(
            call.node,
            "flash attention inside of a scan over sharded layers has produced NaN, and a "
            "different result each time",
            suggestion="scaled_dot_product_attention in the layers that are scanned, or a loop "
            "over the layers",
            related=[model.place(kernel.node, "the layers call the kernel here")],
        )
