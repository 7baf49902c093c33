"""XLA208: a random crop of device tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import bounds, drawn, made_by
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
    yield from _cut_out(model)
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


def _cut_out(model: FileModel) -> Iterator[Problem]:
    """``images[:, :, top : top + 224]`` with ``top = random.randrange(32)``."""
    for node in model.nodes(cst.Subscript):
        if not model.value(node.value).is_device_tensor or _is_array(model, node):
            continue
        parts = (part for bound in bounds(node) for part in walk(bound))
        made = next(filter(None, (drawn(model, part) for part in parts)), None)
        loop = costly_loop(model, node) if made is not None else None
        if made is None or loop is None or model.hot_loop(made.node) is None:
            continue
        yield model.problem(
            node,
            "the place of this cut is drawn as a Python number, which becomes a constant of the "
            "graph: a new graph, and a compilation, in almost every step",
            suggestion="cut on the host, in the Dataset; or draw the place on the device: "
            "x.index_select(dim, start + torch.arange(length, device=device))",
            related=[loop_place(model, loop), model.place(made.node, "drawn here")],
        )


def _is_array(model: FileModel, node: cst.Subscript) -> bool:
    """``y = waves[a:b]; torch.from_numpy(y)``: a device loader leaves arrays on the host."""
    line = model.parent(node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    return isinstance(target, cst.Name) and any(
        isinstance(given := call.argument(0), cst.Name) and given.value == target.value
        for call in model.calls("torch.from_numpy")
    )


def _transform(model: FileModel, call: CallSite) -> CallSite | None:
    func = call.node.func
    made = made_by(model, func) if isinstance(func, cst.Name | cst.Call) else None
    return made if made is not None and made.name in _MEASURED else None
