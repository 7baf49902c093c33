"""Locks that each process makes for itself, and that hold nobody back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model.knowledge import XMP
from xladoctor.lint.rules._cores import entry_places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


def own_locks(model: FileModel) -> Iterator[Problem]:
    """``serial = xmp.MpSerialExecutor()`` in the function that the cores run."""
    if not model.is_xla:
        return
    for call in model.calls(f"{XMP}.MpSerialExecutor"):
        entry = model.on_every_core(call.node) if call.function is not None else None
        if entry is None or model.core_guard(call.node) is not None:
            continue
        yield model.problem(
            call.node,
            "each process makes a lock of its own here, which holds no other back: all cores do "
            "at once what it runs, such as a download",
            suggestion='xm.rendezvous("data") behind what the master core does alone; a lock for '
            "all has to be made before the processes are forked",
            related=entry_places(model, entry),
        )
