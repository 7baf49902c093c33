"""XLA425: only the master core reads a tensor of the step, so its graph is another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places
from xladoctor.lint.rules._protocol import reduces_gradients
from xladoctor.lint.rules._reads import loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Reads that materialize the tensor itself. Those that read a temporary copy (``.item()``,
#: ``float(t)``, ``f"{t}"``) left the step's graph as it was when measured.
_METHODS = ("cpu", "tolist", "numpy")
_PRINTS = ("builtins.print", "torch_xla.core.xla_model.master_print")
_MASTER_PRINT = _PRINTS[1]


@rule("XLA425")
def master_only_read(model: FileModel) -> Iterator[Problem]:
    """Find reads in the step loop behind ``if xm.is_master_ordinal()``."""
    if not model.is_xla or model.spmd or not reduces_gradients(model):
        return
    for call, tensor in _reads(model):
        entry = model.on_every_core(call.node)
        guard = model.master_only(call.node)
        loop = model.step_loop(call.node)
        if entry is None or loop is None or model.in_step_closure(call.node):
            continue
        if guard is None and call.name != _MASTER_PRINT:
            continue
        if model.effects.ran_before(call.node, tensor, loop):
            continue
        yield model.problem(
            call.node,
            f"only the master core reads {snippet(model, tensor)} before the step has run: its "
            "step becomes another graph than that of the other cores, and the reduction of the "
            "gradients never meets",
            suggestion="read on all cores and print on the master, or use "
            "xm.add_step_closure(log, args=(loss.detach(),))",
            related=[
                *([model.place(guard.test, "only the master core gets here")] if guard else []),
                loop_place(model, loop),
                *entry_places(model, entry),
            ],
        )


def _reads(model: FileModel) -> Iterator[tuple[CallSite, cst.BaseExpression]]:
    for call in model.methods(*_METHODS):
        tensor = call.receiver
        if isinstance(tensor, cst.Call):  # loss.detach().cpu()
            inner = model.call(tensor)
            tensor = inner.receiver if inner.method in {"detach", "cpu"} else None
        if isinstance(tensor, cst.Name) and model.value(tensor).is_device_tensor:
            yield call, tensor
    for call in model.calls(*_PRINTS):
        for argument in call.positional:
            if isinstance(argument, cst.Name) and model.value(argument).is_device_tensor:
                yield call, argument
