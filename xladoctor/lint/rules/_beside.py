"""Loops of the program's own beside those of a framework, over a loader that it makes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules._loaders import DATA_LOADER

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel, Loop


def over_own_loader(model: FileModel, loop: Loop) -> bool:
    """``for x in DataLoader(rows, 8): net(x.to(args.device))`` in a class that extends a Trainer.

    A Trainer runs its own loops alone, and Accelerate has the loaders that it is given: what a
    loader of torch goes to directly, nobody has prepared. Beside Lightning's Trainer such a loop
    often runs what was trained elsewhere, on another device: there it has to move its batches to
    what torch_xla gave.
    """
    if "lightning" in model.frameworks and not _surely_moves(model, loop):
        return False
    given = loop.iterates
    kinds = {given.kind, *(road.kind for road in given.roads)}
    made = given.origin
    return (
        kinds == {Kind.LOADER}
        and isinstance(made, cst.Call)
        and isinstance(loop.node, cst.For)
        and model.file_with(made).name(made.func) == DATA_LOADER
    )


def _surely_moves(model: FileModel, loop: Loop) -> bool:
    """Whether a loop moves something to a device that is certainly one of XLA's."""
    given = (
        call.argument(0, "device")
        for call in model.calls_in(loop.node)
        if call.method == "to" and model.loop(call.node) is loop
    )
    devices = (model.value(one) for one in given if one is not None)
    return any(one.kind is Kind.DEVICE and one.certain for one in devices)
