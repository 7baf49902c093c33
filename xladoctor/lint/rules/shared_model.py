"""XLA424: one model object is moved by several cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, every_core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_WRAPPER = "torch_xla.distributed.xla_multiprocessing.MpModelWrapper"


@rule("XLA424")
def shared_model(model: FileModel) -> Iterator[Problem]:
    """Find moves of a model of the module's own code in functions that every core runs."""
    for call in model.methods("to"):
        target = call.argument(0, "device")
        if target is None or model.value(target).kind is not Kind.DEVICE:
            continue
        maker = _global_model(model, call)
        entry = every_core(model, call.node) if maker is not None else None
        if maker is None or entry is None or entry.function is None:
            continue
        wrapped = isinstance(maker, cst.Call) and model.name(maker.func) == _WRAPPER
        what = "MpModelWrapper.to" if wrapped else "this"
        yield model.problem(
            call.node,
            f"{what} moves the one model of the process: where a process runs two cores (TPU v2 "
            "and v3), both cores then train the same parameters on the second one's device",
            suggestion="build the model in the function that every core runs, then "
            "xm.broadcast_master_param(model)",
            related=[model.place(maker, "the one model"), *entry_places(model, entry)],
        )


def _global_model(model: FileModel, call: CallSite) -> cst.CSTNode | None:
    """What made the model, if the receiver is a name that only the module's own code binds."""
    node = call.receiver
    if not isinstance(node, cst.Name) or call.function is None:
        return None
    bindings = model.bindings(node.value, node)
    if len(bindings) != 1 or bindings[0].kind != "assign":
        return None
    made = bindings[0].node
    if not isinstance(made, cst.BaseExpression) or model.function_of(made) is not None:
        return None
    is_wrapper = isinstance(made, cst.Call) and model.name(made.func) == _WRAPPER
    return made if is_wrapper or model.value(made).kind is Kind.MODEL else None
