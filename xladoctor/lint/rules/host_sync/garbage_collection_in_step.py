"""XLA111: ``gc.collect()`` in the step loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import costly_loop, loop_place, often

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA111")
def garbage_collection_in_step(model: FileModel) -> Iterator[Problem]:
    """Find full garbage collections in hot loops."""
    for call in model.calls("gc.collect"):
        loop = costly_loop(model, call.node)
        if loop is None:
            continue
        yield model.problem(
            call.node,
            f"a full garbage collection {often(loop)} walks all Python objects (0.2 to 0.3 "
            "seconds with torch_xla loaded) and frees no device memory that is not free already",
            suggestion="delete it, or collect once per epoch",
            related=[loop_place(model, loop)],
            fix=model.fix("Delete the collection", model.remove_statement(call.node), safe=True),
        )
