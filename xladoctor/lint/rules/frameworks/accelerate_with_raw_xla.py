"""XLA904: what Accelerate has prepared is reduced or wrapped a second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import OnXla
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._handed_over import prepared_names
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_LOADER = "torch_xla.distributed.parallel_loader.MpDeviceLoader"


@rule("XLA904")
def accelerate_with_raw_xla(model: FileModel) -> Iterator[Problem]:
    """Find torch_xla's step and loader around what ``accelerator.prepare`` gave back."""
    if "accelerate" not in model.frameworks:
        return
    prepared = set(prepared_names(model))
    for call in model.calls(OPTIMIZER_STEP, _LOADER):
        first = call.argument(0)
        named = dotted_text(first) if first is not None else None
        if named is None or named not in prepared:
            continue
        if call.name == _LOADER:
            what, instead = "moves its batches to the device", "iterate over it as it is"
        else:
            what = "reduces the gradients over the cores in its step()"
            instead = f"{named}.step()"
        yield model.problem(
            call.node,
            f"`{named}` was prepared by Accelerate and {what}: this does it a second time",
            suggestion=instead,
        )
    yield from _unwrapped(model, prepared)


def _unwrapped(model: FileModel, prepared: set[str]) -> Iterator[Problem]:
    """``with model.no_sync():`` of a prepared model.

    On XLA devices ``prepare_model`` (Accelerate 1.15) puts no DistributedDataParallel around it.
    """
    for call in model.methods("no_sync") if model.is_xla else ():
        held = dotted_text(call.receiver) if call.receiver is not None else None
        if held is None or held not in prepared or tolerated(model, call.node):
            continue
        if model.on_xla(call.node) is not OnXla.NO:
            yield model.problem(
                call.node,
                f"on XLA devices Accelerate wraps `{held}` in nothing: it has no no_sync, and this "
                "raises AttributeError",
                suggestion=f"with accelerator.no_sync({held}), or accelerator.accumulate({held})",
            )
