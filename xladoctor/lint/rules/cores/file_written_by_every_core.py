"""XLA406: one file that all cores write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rewrites.moves import under_condition
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, every_core, same_everywhere
from xladoctor.lint.rules._reads import snippet
from xladoctor.lint.rules._writes import SAVE, written_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem


@rule("XLA406")
def file_written_by_every_core(model: FileModel) -> Iterator[Problem]:
    """Find files with one name that every core opens for writing."""
    for call in model.calls():
        path = written_path(model, call)
        if path is None or _is_nowhere(model, path) or not same_everywhere(model, path):
            continue
        entry = every_core(model, call.node)
        if entry is None:
            continue
        yield model.problem(
            call.node,
            f"every core writes {snippet(model, path)}: they overwrite each other, and one that "
            "reads it may find half a file",
            suggestion=(
                "xm.save(data, path) writes once: call it on all cores"
                if call.name == "torch.save"
                else "write it under `if xm.is_master_ordinal(local=False):` (read device values "
                "before, on all cores)"
            ),
            related=entry_places(model, entry),
            fix=_fix(model, call),
        )


def _is_nowhere(model: FileModel, path: cst.BaseExpression) -> bool:
    """``open(os.devnull, "w")``, to be rid of what the other cores print."""
    return model.name(path) == "os.devnull" or model.literal(path) in {"/dev/null", "nul"}


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """``torch.save`` as ``xm.save``; another writer under a test for the master core."""
    if call.has_star:
        return None
    if call.name == "torch.save":
        spelled = model.spelled(SAVE, call.node)
        if spelled is None or len(call.node.args) != 2 or call.keywords:
            return None
        return model.fix("Write it once", model.replace(call.node.func, spelled), safe=False)
    spelled = model.spelled("torch_xla.core.xla_model.is_master_ordinal", call.node)
    if spelled is None or call.name == SAVE or call.name == "builtins.open":
        return None
    if not isinstance(model.parent(call.node), cst.Expr) or _reads_device(model, call):
        return None  # all cores have to read what is on the device, so the test cannot go here
    edit = under_condition(model, call.node, f"{spelled}(local=False)")
    return model.fix("Write it on the master core", edit, safe=False)


def _reads_device(model: FileModel, call: CallSite) -> bool:
    """Whether anything that is written may be on the device."""
    parts = [part for part in walk(call.node) if isinstance(part, cst.BaseExpression)]
    return any(model.value(part).is_device_tensor for part in parts)
