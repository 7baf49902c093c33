"""Pictures that pipelines of diffusers make."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: What makes the pipelines of diffusers.
_PIPELINE = re.compile(r"Pipeline(\.from_(pretrained|single_file|pipe))?$")


def makes_pictures(model: FileModel, call: CallSite) -> bool:
    """``pipe(prompt)`` of diffusers gives pictures of the host, unless it is told otherwise."""
    if call.target is not None or call.name is not None:
        return False
    kept = call.keywords.get("output_type")
    if kept is not None and model.literal(kept) not in {"pil", "np"}:
        return False
    waiting, seen = [call.node.func], set[cst.CSTNode]()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, cst.Name | cst.Attribute):
            waiting += model.assigned_to(node)
        elif isinstance(node, cst.Call):
            made = model.call(node)
            if (made.name or "").startswith("diffusers.") and _PIPELINE.search(made.name or ""):
                return True
            waiting += [made.receiver] if made.method == "to" and made.receiver is not None else []
    return False
