"""XLA101: a device value is read on the host in the step loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import accumulate_advice, costly_loop, read_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_READS = ("item", "cpu", "tolist", "numpy")


@rule("XLA101")
def host_sync_in_step(model: FileModel) -> Iterator[Problem]:
    """Find ``.item()``, ``.cpu()``, ``.tolist()``, ``.numpy()`` and ``.to("cpu")`` in hot loops."""
    for call in model.methods(*_READS, "to"):
        tensor = call.receiver
        if tensor is None or not model.value(tensor).is_device_tensor:
            continue
        if call.method == "to" and not _to_cpu(model, call):
            continue
        loop = costly_loop(model, call.node)
        if loop is not None:
            spelled = '.to("cpu")' if call.method == "to" else f".{call.method}()"
            yield read_problem(
                model, call.node, tensor, loop, f"`{spelled}` reads", accumulate_advice(loop)
            )
    yield from _stores_into_cpu_tensors(model)


def _to_cpu(model: FileModel, call: CallSite) -> bool:
    target = call.argument(0, "device")
    if target is None:
        return False
    if isinstance(target, cst.Call) and model.name(target.func) == "torch.device":
        target = model.call(target).argument(0, "type") or target
    return model.literal(target) == "cpu"


def _stores_into_cpu_tensors(model: FileModel) -> Iterator[Problem]:
    """``losses[i] = loss`` with ``losses`` on the CPU waits without a word of it."""
    for node in walk(model.tree.module):
        if not isinstance(node, cst.Assign) or not model.value(node.value).is_device_tensor:
            continue
        for item in node.targets:
            target = item.target
            if (
                isinstance(target, cst.Subscript)
                and model.value(target.value).kind is Kind.CPU_TENSOR
                and (loop := costly_loop(model, node)) is not None
            ):
                yield read_problem(
                    model,
                    node,
                    node.value,
                    loop,
                    "storing into a CPU tensor reads",
                    "create the tensor on the device, or append to a list and torch.stack it "
                    "after the loop",
                )
