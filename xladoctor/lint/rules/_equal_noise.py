"""Noise that a step draws on the host after one seed for all cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules._cores import entry_places, every_core
from xladoctor.lint.rules._equal import same_seed
from xladoctor.lint.rules._moves import moves
from xladoctor.lint.rules._reads import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem

_DRAWS = ("torch.randn", "torch.rand", "torch.randint", "torch.normal")
#: Sizes of one number, which decides something for all cores, or is one for a whole batch.
_ONE: Sequence[object] = (1, (), (1,), [1], [])


def equal_noise(model: FileModel) -> Iterator[Problem]:
    """``z = torch.randn(n, 64).to(device)`` in a step, behind ``torch.manual_seed(1)``."""
    drawn = [
        call for call in model.calls(*_DRAWS) if not {"generator", "device"} & set(call.keywords)
    ]
    if not drawn:
        return
    moved = {
        model.value(move.source).origin
        for move in moves(model)
        if isinstance(move.source, cst.Name | cst.Call)
    }
    for call in drawn:
        if call.node not in moved or _is_one(model, call) or model.step_loop(call.node) is None:
            continue
        entry = every_core(model, call.node)
        if entry is None or not_here(model, call.node):
            continue
        seed = same_seed(model, call)
        if seed is None:
            continue
        yield model.problem(
            call.node,
            f"{call.last} gives every core the same numbers, because all have the same seed",
            suggestion="seed the host by the core once the weights are made: "
            "torch.manual_seed(seed + xr.global_ordinal()), or draw on the device",
            related=[model.place(seed.call.node, "the same seed"), *entry_places(model, entry)],
        )


def _is_one(model: FileModel, call: CallSite) -> bool:
    """``torch.rand(1)``, ``torch.randint(0, 9, (1,))``."""
    if call.last == "randint":
        size = call.keywords.get("size") or (call.positional[-1] if call.positional else None)
        return size is not None and model.literal(size) in _ONE
    size = call.keywords.get("size")
    sizes = [size] if size is not None else call.positional
    return all(model.literal(one) in _ONE for one in sizes)
