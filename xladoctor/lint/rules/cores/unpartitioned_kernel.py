"""XLA446: a Pallas kernel in SPMD mode that XLA cannot divide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._spmd import conditional, turned_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_KERNELS = ("torch_xla.experimental.custom_kernel.flash_attention",)


@rule("XLA446")
def unpartitioned_kernel(model: FileModel) -> Iterator[Problem]:
    """Find ``flash_attention`` without ``partition_spec`` in programs that turn SPMD on."""
    parts = ((part, turned_on(part)) for part in (model, *model.linked))
    part, start = next((found for found in parts if found[1] is not None), (model, None))
    if start is None:
        return
    for call in model.calls(*_KERNELS):
        if call.has_star or "partition_spec" in call.keywords or conditional(model, call.node):
            continue
        yield model.problem(
            call.node,
            "XLA cannot look into the kernel: without partition_spec it gathers query, key and "
            "value of the whole batch on every device",
            suggestion='partition_spec=("data", None, None, None), mesh=mesh (or the axes of '
            "yours)",
            related=[part.place(start.node, "SPMD is turned on here")],
        )
