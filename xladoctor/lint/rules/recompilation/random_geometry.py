"""XLA208: a random crop of device tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import made_by
from xladoctor.lint.rules._reads import costly_loop, loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Transforms that were measured to compile a new graph in (almost) every step.
_MEASURED = frozenset(
    f"torchvision.transforms{version}.{name}"
    for version in ("", ".v2")
    for name in ("RandomCrop", "RandomResizedCrop", "RandomErasing", "CutMix")
)


@rule("XLA208")
def random_geometry(model: FileModel) -> Iterator[Problem]:
    """Find random crops and the like that are given device tensors in hot loops."""
    for call in model.calls():
        transform = _transform(model, call)
        if transform is None or not call.positional:
            continue
        if not any(model.value(item).is_device_tensor for item in call.positional):
            continue
        loop = costly_loop(model, call.node)
        if loop is not None:
            name = (transform.name or "").rpartition(".")[2]
            yield model.problem(
                call.node,
                f"the box of {name} is drawn as Python numbers, which become constants of the "
                "graph: a new graph, and a compilation, in almost every step",
                suggestion="transform on the host: in the Dataset, or in collate_fn for CutMix",
                related=[
                    loop_place(model, loop),
                    model.place(transform.node, "the transform is made here"),
                ],
            )


def _transform(model: FileModel, call: CallSite) -> CallSite | None:
    func = call.node.func
    made = made_by(model, func) if isinstance(func, cst.Name | cst.Call) else None
    return made if made is not None and made.name in _MEASURED else None
