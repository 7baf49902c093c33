"""XLA424: one model of the module that several cores move to their device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places
from xladoctor.lint.rules._shared import Shared, shared_fix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_WRAPPER = "torch_xla.distributed.xla_multiprocessing.MpModelWrapper"
#: First release without XRT, in which each core was a process.
_SINCE = (2, 0)


@rule("XLA424")
def shared_model(model: FileModel) -> Iterator[Problem]:
    """Find ``global_model.to(device)`` and ``MpModelWrapper`` in what every core runs."""
    if model.target < _SINCE or not model.is_xla or model.spmd or model.frameworks:
        return
    for move in model.methods("to"):
        entry = model.on_every_core(move.node)
        shared = _shared(model, move) if entry is not None else None
        if entry is None or shared is None:
            continue
        yield model.problem(
            move.node,
            f"all cores of a process move the one {shared.name.value} of the module: where a "
            "process has two cores (TPU v2, v3), both train the same parameters, on one of them",
            suggestion="make the model in the function that each core runs, or move a copy: "
            f"copy.deepcopy({shared.name.value}).to(device)",
            related=[
                model.place(shared.made, "made once, before the cores start"),
                *entry_places(model, entry),
            ],
            fix=shared_fix(model, move, shared),
        )


def _shared(model: FileModel, move: CallSite) -> Shared | None:
    """The model of the module that ``x.to(device)`` moves, if ``x`` is one."""
    name = move.receiver
    device = move.argument(0, "device")
    if not isinstance(name, cst.Name) or device is None:
        return None
    bindings = model.bindings(name.value, name)
    if len(bindings) != 1 or bindings[0].kind != "assign":
        return None
    made = bindings[0].node
    if not isinstance(made, cst.BaseExpression) or not model.is_here(made):
        return None
    if model.function_of(made) is not None or move.function is None:
        return None
    wrapped = None
    if isinstance(made, cst.Call) and model.call(made).name == _WRAPPER:
        wrapped = model.call(made).argument(0, "model")
        if wrapped is None:
            return None
    elif model.value(name).kind is not Kind.MODEL or model.value(device).kind is not Kind.DEVICE:
        return None
    return Shared(name, made, wrapped)
