"""XLA708: a process group for GPUs in a file for XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rewrites.imports import import_edit
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cuda import runs_with_xla
from xladoctor.lint.rules._environment import settings
from xladoctor.lint.rules._settled import settled
from xladoctor.lint.rules._spmd import LAUNCHES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Variables by which processes find one another.
_FOUND_BY = frozenset({"RANK", "MASTER_ADDR", "WORLD_SIZE"})


@rule("XLA708")
def nccl_backend(model: FileModel) -> Iterator[Problem]:
    """Find ``init_process_group("nccl")`` that no condition guards, and groups of nobody."""
    if not model.is_xla:
        return
    for call in model.calls("torch.distributed.init_process_group"):
        backend = call.argument(0, "backend")
        if backend is None or not _is_nccl(model, backend):
            if backend is not None and _finds_nobody(model, call, backend):
                yield model.problem(
                    call.node,
                    "torch_xla starts these processes without RANK and MASTER_ADDR, by which this "
                    "looks for the others: it raises ValueError",
                    suggestion='init_process_group("xla", init_method="xla://")',
                )
            continue
        if runs_with_xla(model, call.node):
            yield model.problem(
                call.node,
                "nccl connects GPUs only: without one init_process_group raises ValueError",
                suggestion='init_process_group("xla", init_method="xla://"), in what '
                "torch_xla.launch or torchrun starts",
                fix=_fix(model, call),
            )


def _finds_nobody(model: FileModel, call: CallSite, backend: cst.BaseExpression) -> bool:
    """``init_process_group("xla")`` in what ``xmp.spawn`` starts, and nobody says who is there."""
    entry = model.on_every_core(call.node)
    started = model.call(entry.call).name if entry and isinstance(entry.call, cst.Call) else None
    method = call.argument(1, "init_method")
    asks = method is None or model.literal(method) == "env://"
    if started not in LAUNCHES or not asks or "store" in call.keywords or call.has_star:
        return False
    if model.literal(backend) != "xla" or not runs_with_xla(model, call.node):
        return False
    said = {name for part in (model, *model.linked) for name, _, _ in settings(part)}
    return not said & _FOUND_BY


def _is_nccl(model: FileModel, backend: cst.BaseExpression) -> bool:
    """Written out, in a setting (``args.backend = "nccl"``), or given by default or all callers."""
    kept = model.assigned.get(model.tree.text(backend).strip(), ())
    if kept:  # what else it is set to may be for XLA
        return all(model.literal(value) == "nccl" for value in kept)
    return {*settled(model, backend)} == {"nccl"}


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """The backend of torch_xla, which knows the cores: nothing else is to be said."""
    known = {"backend", "init_method", "rank", "world_size"}
    if call.has_star or set(call.keywords) - known or len(call.positional) > 2:
        return None
    registers = "torch_xla.distributed.xla_backend"
    missing = registers not in model.names.imported()
    added = [import_edit(model, f"import {registers}")] if missing else []
    func = model.tree.text(call.node.func).strip()
    edit = model.replace(call.node, f'{func}("xla", init_method="xla://")')
    return model.fix("Use the backend of torch_xla", edit, *added, safe=False)
