"""XLA802: a name that still works and warns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._api import replacement_fix, uses
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA802")
def deprecated_api(model: FileModel) -> Iterator[Problem]:
    """Find names that warn in the torch_xla to lint for."""
    for node, _, entry in uses(model):
        if not entry.deprecated(model.target) or tolerated(model, node):
            continue
        if any(isinstance(one, cst.Annotation) for one in model.tree.ancestors(node)):
            continue  # nobody calls it there
        yield model.problem(
            node,
            f"{entry.old} is deprecated since torch_xla {entry.deprecated_in}",
            suggestion=f"use {entry.new}" if entry.new else entry.advice,
            fix=replacement_fix(model, node, entry),
        )
