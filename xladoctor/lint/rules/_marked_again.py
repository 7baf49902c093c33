"""Batches that a device loader has uploaded whole, and that the step divides then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.model.loops import HOT
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules._reads import loop_place, often

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

_MARK = "mark_sharding"
#: Names between the batch and what is marked.
_NAMES = 3


def marked_again(model: FileModel) -> Iterator[Problem]:
    """``xs.mark_sharding(images, mesh, ...)`` of what ``MpDeviceLoader`` gives, once a loop.

    Measured on torch_xla 2.9: each marked tensor of each batch is read back to the host and
    uploaded again; with ``input_sharding`` none is.
    """
    told: set[Loop] = set()
    for call in model.calls() if model.spmd else ():
        if call.last != _MARK:
            continue
        loop = model.hot_loop(call.node)
        if loop is None or loop.kind not in HOT or loop in told:
            continue
        if not _is_of_batch(model, call, loop):
            continue
        made = loop.iterates.origin
        if loop.iterates.kind is not Kind.DEVICE_LOADER or not isinstance(made, cst.Call):
            continue
        loader = model.call(made) if model.is_here(made) else None
        if loader is None or loader.has_star or "input_sharding" in loader.keywords:
            continue
        told.add(loop)
        yield model.problem(
            call.node,
            f"the device loader has uploaded this whole: {often(loop)} mark_sharding reads it "
            "back to the host and uploads it again, divided",
            suggestion="have the loader divide it: MpDeviceLoader(..., "
            "input_sharding=xs.ShardingSpec(mesh, axes))",
            related=[model.place(made, "the device loader"), loop_place(model, loop)],
        )


def _is_of_batch(model: FileModel, call: CallSite, loop: Loop) -> bool:
    """Whether what is marked is a tensor of the batch, not one that the step has computed."""
    over, given = loop.node, call.argument(0, "t")
    if not isinstance(over, cst.For) or given is None or call.function is not loop.function:
        return False
    return _is_part(model, given, frozenset(names_bound(over.target)))


def _is_part(
    model: FileModel, node: cst.CSTNode, batch: frozenset[str], depth: int = _NAMES
) -> bool:
    """Whether something is taken out of what some names hold: ``batch["images"]``."""
    while isinstance(node, cst.Subscript | cst.Attribute):
        node = node.value
    if not isinstance(node, cst.Name) or not depth:
        return False
    if node.value in batch:
        return True
    given = model.made_of(node)
    return bool(given) and all(
        one is not None and _is_part(model, one, batch, depth - 1) for one in given
    )
