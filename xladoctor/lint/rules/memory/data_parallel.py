"""XLA709: ``nn.DataParallel`` uses one XLA device, whatever their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cuda import runs_with_xla
from xladoctor.lint.words import XLA_WORDS, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Words of names that count GPUs.
_GPUS = frozenset({"gpu", "gpus", "ngpu", "ngpus"})
#: Of a file that leaves XLA to another: a process has one XLA device, so these are no such ones.
_COUNTED = frozenset({"devices", "ndevices"})


@rule("XLA709")
def data_parallel(model: FileModel) -> Iterator[Problem]:
    """Find ``torch.nn.DataParallel`` in files for XLA devices."""
    if not model.is_xla:
        return
    for call in model.calls("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
        if runs_with_xla(model, call.node) and not _where_gpus_are(model, call):
            yield model.problem(
                call.node,
                "nn.DataParallel splits batches over GPUs: on XLA the model runs on one device and "
                "the others idle",
                suggestion="start one process per core with torch_xla.launch, or use SPMD",
                fix=_fix(model, call),
            )


def _where_gpus_are(model: FileModel, call: CallSite) -> bool:
    """``if args.n_gpu > 1 and not quantized:``, which no program for XLA devices counts."""
    asked = [words(model.tree.text(each.test)) for each in model.guards(call.node) if each.when]
    own = any(name.partition(".")[0] == "torch_xla" for name in model.names.imported())
    counted = _GPUS if own else _GPUS | _COUNTED
    return any(said & counted and not said & XLA_WORDS for said in asked)


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """The model itself, in files that never ask the wrapper for its ``module``."""
    inner = call.argument(0, "module")
    asked = any(n.attr.value == "module" for n in model.nodes(cst.Attribute))
    if inner is None or asked or call.has_star:
        return None
    text = model.tree.text(inner).strip()
    edit, parent = None, model.parent(call.node)
    if isinstance(parent, cst.Assign) and model.tree.text(parent.targets[0].target) == text:
        edit = model.remove_statement(call.node)  # model = model
    edit = edit or model.replace(call.node, text)
    return model.fix("Leave the wrapper out", edit, safe=False)
