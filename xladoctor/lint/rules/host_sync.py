"""XLA101: a device value is read on the host in the step loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.model.knowledge import DATA_LOADERS
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._accumulate import accumulate_fix
from xladoctor.lint.rules._closures import closure_fix
from xladoctor.lint.rules._kept import kept_fix
from xladoctor.lint.rules._lightning import logged_fix
from xladoctor.lint.rules._meters import meter_fix
from xladoctor.lint.rules._reads import accumulate_advice, costly_loop, read_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

#: Functions that read device tensors given to them, directly or in a list or dictionary. Measured
#: for torch (tables/ops.toml); the loggers convert what they are given to Python numbers.
_LIBRARY_READS = frozenset(
    {"torch.tensor", "torch.allclose", "wandb.log", "mlflow.log_metric", "mlflow.log_metrics"}
)
#: Methods of TensorBoard's SummaryWriter that do.
_WRITERS = frozenset({"add_scalar", "add_scalars", "add_histogram", "add_image", "add_images"})
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
        if call.method == "numpy" and model.value(tensor).certain:
            continue  # raises: XLA105
        loop = costly_loop(model, call.node)
        if loop is not None:
            spelled = '.to("cpu")' if call.method == "to" else f".{call.method}()"
            fix = _item_fix(model, call, tensor, loop) if call.method == "item" else None
            fix = fix or closure_fix(model, call.node, loop)
            yield read_problem(
                model, call.node, tensor, loop, f"`{spelled}` reads", accumulate_advice(loop), fix
            )
    yield from _reads_in_libraries(model)
    yield from _stores_into_cpu_tensors(model)


def _item_fix(
    model: FileModel, call: CallSite, tensor: cst.BaseExpression, loop: Loop
) -> Fix | None:
    """Leave the value on the device, where a sum, a meter or a list takes it."""
    return (
        accumulate_fix(model, call.node, tensor, loop)
        or meter_fix(model, call.node, tensor, loop)
        or kept_fix(model, call.node, tensor, loop)
        or logged_fix(model, call)
    )


def _to_cpu(model: FileModel, call: CallSite) -> bool:
    target = call.argument(0, "device")
    if target is None:
        return False
    if isinstance(target, cst.Call) and model.name(target.func) == "torch.device":
        target = model.call(target).argument(0, "type") or target
    return model.literal(target) == "cpu"


def _reads_in_libraries(model: FileModel) -> Iterator[Problem]:
    """Calls that read the values of the tensors they are given."""
    for call in model.calls():
        if call.name not in _LIBRARY_READS and (call.name or call.method not in _WRITERS):
            continue
        values = [*call.positional, *call.keywords.values()]
        inner = [part for value in values for part in _literal_parts(value)]
        tensor = next((v for v in [*values, *inner] if model.value(v).is_device_tensor), None)
        if tensor is None or (call.name == "torch.tensor" and tensor not in inner):
            continue  # torch.tensor(t) of one tensor is a copy on its device
        loop = costly_loop(model, call.node)
        if loop is None:
            continue
        spelled = call.name or f".{call.method}"
        advice = "log every 100 steps in a step closure: xm.add_step_closure(log, args=(...))"
        if call.name == "torch.tensor":
            advice = "use torch.stack([a.detach(), b.detach()]), which stays on the device"
        elif call.name == "torch.allclose":
            advice = "use torch.isclose(a, b).all(), kept as a tensor"
        fix = closure_fix(model, call.node, loop)
        yield read_problem(model, call.node, tensor, loop, f"`{spelled}()` reads", advice, fix)


def _literal_parts(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The elements of a list, tuple or dictionary as it is written."""
    if isinstance(value, cst.List | cst.Tuple | cst.Dict):
        yield from (element.value for element in value.elements)


def _is_cpu_tensor(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether something was made as one tensor: a batch of a plain loader may be a dictionary."""
    value = model.value(node)
    if value.kind is not Kind.CPU_TENSOR or not isinstance(value.origin, cst.Call):
        return False
    return model.name(value.origin.func) not in DATA_LOADERS


def _stores_into_cpu_tensors(model: FileModel) -> Iterator[Problem]:
    """``losses[i] = loss`` with ``losses`` on the CPU waits without a word of it."""
    for node in model.nodes(cst.Assign):
        if not model.value(node.value).is_device_tensor:
            continue
        for item in node.targets:
            target = item.target
            if (
                isinstance(target, cst.Subscript)
                and _is_cpu_tensor(model, target.value)
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
