"""XLA422: ``MpDeviceLoader`` has none of the attributes of the loader it wraps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._sources import of_parameter
from xladoctor.lint.rules._tolerated import tolerated

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
        made = _maker(model, node.value) or _given(model, node.value)
        if made is None:
            continue
        if isinstance(model.parent(node), cst.AssignTarget) or tolerated(model, node):
            continue
        yield model.problem(
            node,
            f"a device loader has no attribute {node.attr.value}: this raises AttributeError",
            suggestion="keep the DataLoader or its sampler in a name of its own, and ask that",
            related=[model.place(made, "the device loader is made here")],
        )


def _maker(model: FileModel, node: cst.BaseExpression) -> cst.Call | None:
    """The call of torch_xla that has certainly made what an expression holds."""
    value = model.value(node)
    made = value.origin
    if value.kind not in {Kind.DEVICE_LOADER, Kind.PARALLEL_LOADER} or not value.certain:
        return None
    if not isinstance(made, cst.Call) or not (model.name(made.func) or "").startswith(_MAKERS):
        return None
    return made


def _given(model: FileModel, node: cst.BaseExpression) -> cst.Call | None:
    """The same for a parameter, of which a script for other devices gives a plain loader."""
    if not isinstance(node, cst.Name) or assigned(model, node):
        return None
    makers = [_maker(model, given) for given in of_parameter(model, node) or ()]
    return makers[0] if makers and None not in makers else None
