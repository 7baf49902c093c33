"""XLA902: what Lightning does on XLA devices is done a second time by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Function, Problem

_BASES = frozenset({"LightningModule", "LightningDataModule"})
_XM = "torch_xla.core.xla_model."
_BY_HAND = {
    f"{_XM}optimizer_step": "reduces the gradients and steps",
    f"{_XM}mark_step": "ends the graph of each step",
    "torch_xla.sync": "ends the graph of each step",
    "torch_xla.distributed.parallel_loader.MpDeviceLoader": "wraps loaders for the device",
    "torch_xla.distributed.parallel_loader.ParallelLoader": "wraps loaders for the device",
}


@rule("XLA902")
def lightning_manual_xla(model: FileModel) -> Iterator[Problem]:
    """Find step protocol of torch_xla in methods of Lightning's modules."""
    if "lightning" not in model.frameworks:
        return
    for call in model.calls(*_BY_HAND):
        if _in_module(model, call.function):
            name = (call.name or "").rpartition(".")[2]
            yield model.problem(
                call.node,
                f"Lightning's XLA strategy {_BY_HAND[call.name or '']} by itself: {name} does it "
                "a second time",
                suggestion="leave it out; the Trainer takes care of it",
            )


def _in_module(model: FileModel, function: Function | None) -> bool:
    while function is not None:
        if function.owner is not None:
            bases = {(model.name(base) or "").rpartition(".")[2] for base in function.owner.bases}
            if bases & _BASES:
                return True
        function = function.outer
    return False
