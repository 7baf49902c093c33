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
    often runs what was trained elsewhere, on another device.
    """
    if "lightning" in model.frameworks:
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
