"""XLA810: ``ParallelLoader`` by hand, where ``MpDeviceLoader`` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rewrites.parallel import PARALLEL, device_loader_fix
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: First release with MpDeviceLoader.
_SINCE = (1, 6)


@rule("XLA810")
def parallel_loader(model: FileModel) -> Iterator[Problem]:
    """Find ``pl.ParallelLoader(...)`` for one device."""
    if model.target < _SINCE:
        return
    for call in model.calls(PARALLEL):
        if call.function is not None and call.function.name == "__iter__":
            continue  # a device loader of the program's own: it makes one for each epoch
        yield model.problem(
            call.node,
            "a ParallelLoader goes over its loader once: every pass needs a new one, and its "
            "per_device_loader",
            suggestion=(
                "use pl.MpDeviceLoader(loader, device), which can be iterated in every epoch"
            ),
            fix=device_loader_fix(model, call),
        )
