"""XLA422: ``MpDeviceLoader`` has none of the attributes of the loader it wraps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_MISSING = frozenset({"sampler", "batch_sampler", "dataset", "batch_size", "collate_fn"})
_MAKERS = "torch_xla.distributed.parallel_loader."


@rule("XLA422")
def device_loader_attribute(model: FileModel) -> Iterator[Problem]:
    """Find attributes of the wrapped loader that are asked of the device loader."""
    for node in model.nodes(cst.Attribute):
        if node.attr.value not in _MISSING:
            continue
        value = model.value(node.value)
        made = value.origin
        if value.kind not in {Kind.DEVICE_LOADER, Kind.PARALLEL_LOADER} or not value.certain:
            continue
        if not isinstance(made, cst.Call) or not (model.name(made.func) or "").startswith(_MAKERS):
            continue
        if isinstance(model.parent(node), cst.AssignTarget):
            continue
        yield model.problem(
            node,
            f"a device loader has no attribute {node.attr.value}: this raises AttributeError",
            suggestion="keep the DataLoader or its sampler in a name of its own, and ask that",
            related=[model.place(made, "the device loader is made here")],
        )
