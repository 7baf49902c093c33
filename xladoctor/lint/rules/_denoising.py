"""Loops that go back over the time steps of a diffusion, by what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel


def counts_back(model: FileModel, node: cst.For) -> bool:
    """``reversed(range(steps))``, ``range(steps - 1, -1, -1)``, also within ``tqdm(...)``."""
    for part in model.within(node.iter, cst.Call):
        name = model.name(part.func)
        inner = part.args[0].value if part.args else None
        if name == "builtins.reversed" and isinstance(inner, cst.Call):
            return model.name(inner.func) == "builtins.range"
        if name == "builtins.range" and len(part.args) == 3:
            step = part.args[2].value
            return isinstance(step, cst.UnaryOperation) and isinstance(step.operator, cst.Minus)
    return False


def feeds_itself(model: FileModel, node: cst.For) -> bool:
    """``x = denoise(net, x, t)``: what a turn computes is given to the next."""
    set_here = {
        target.target.value
        for part in walk(node.body, into_functions=False)
        if isinstance(part, cst.Assign)
        for target in part.targets
        if isinstance(target.target, cst.Name)
    }
    given = {
        argument.value.value
        for part in walk(node.body, into_functions=False)
        if isinstance(part, cst.Call) and model.value(part).is_device_tensor
        for argument in part.args
        if isinstance(argument.value, cst.Name)
    }
    return bool(set_here & given)
