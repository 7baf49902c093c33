"""XLA718: a loader pins the memory of batches that go to an XLA device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import Kind, LoopKind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cuda import runs_with_xla
from xladoctor.lint.rules._exact import given_true
from xladoctor.lint.rules._lightning import chooses_devices
from xladoctor.lint.rules._loaders import DATA_LOADER, loops_over
from xladoctor.lint.rules._reads import loop_place
from xladoctor.lint.rules._settled import settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel, Problem

_MESSAGE = (
    "pinned memory is for copies to a GPU: without one torch warns and does not pin, and an XLA "
    "device has no use for it"
)


@rule("XLA718")
def pinned_memory(model: FileModel) -> Iterator[Problem]:
    """Find ``DataLoader(..., pin_memory=True)`` that feeds a loop on an XLA device."""
    if not model.is_xla:
        return
    yield from _by_trainer(model)
    for call in model.calls(DATA_LOADER):
        pinned = call.keywords.get("pin_memory")
        if pinned is None or not _is_on(model, pinned) or not runs_with_xla(model, call.node):
            continue
        if "lightning" in model.frameworks and chooses_devices(model):
            continue
        loops = loops_over(model, call)
        loop = next((x for x in loops if x.kind in {LoopKind.STEP, LoopKind.EVAL}), None)
        # A Trainer's loop over a loader is not in sight: all loaders of the file are for it. Nor
        # has what another file goes over to be: a device loader of it is for XLA devices.
        unseen = not loops and ("lightning" in model.frameworks or _on_devices(model, call))
        if loop is None and not unseen:
            continue
        yield model.problem(
            pinned,
            _MESSAGE,
            suggestion="leave pin_memory out",
            related=[] if loop is None else [loop_place(model, loop)],
            fix=model.fix(
                "Leave pin_memory out", model.remove_argument(call.node, pinned), safe=False
            ),
        )


def _is_on(model: FileModel, pinned: cst.BaseExpression) -> bool:
    """``True``, also by a name or as a default; not what depends on the machine."""
    return all(value is True for value in settled(model, pinned))


def _on_devices(model: FileModel, call: CallSite) -> bool:
    """Whether a device loader is made of a loader: ``pl.MpDeviceLoader(loader, device)``."""
    wraps = (one for one in model.calls() if model.value(one.node).kind is Kind.DEVICE_LOADER)
    given = (one.argument(0, "loader") for one in wraps)
    return any(node is not None and model.value(node).origin is call.node for node in given)


def _by_trainer(model: FileModel) -> Iterator[Problem]:
    """``TrainingArguments(dataloader_pin_memory=True)``."""
    for call in model.calls():
        if not (call.name or "").endswith(("TrainingArguments", "Config")):
            continue
        pinned = given_true(model, call, "dataloader_pin_memory")
        if pinned is None or not runs_with_xla(model, call.node):
            continue
        yield model.problem(
            pinned,
            _MESSAGE,
            suggestion="dataloader_pin_memory=False",
            fix=model.fix("Do not pin", model.replace(pinned, "False"), safe=True),
        )
