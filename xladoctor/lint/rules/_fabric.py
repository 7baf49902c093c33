"""What rules about Lightning Fabric share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import frameworks
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.rules._lightning import class_of, for_xla, several_cores

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel, Function

#: Through how many calls a function is looked for that is started on each core.
_DEPTH = 4
#: What makes it.
MADE = ("lightning.fabric.Fabric", "lightning.Fabric")
_DEVICE_LOADERS = tuple(
    f"torch_xla.distributed.parallel_loader.{name}" for name in ("MpDeviceLoader", "ParallelLoader")
)
#: Strategies under which each core holds a part of the weights, whose gradients are reduced with
#: the backward pass.
_SHARDED = frozenset({"XLAFSDPStrategy"})


def fabric_of_cores(model: FileModel, *, sharded: bool = False) -> CallSite | None:
    """Fabric on several TPU cores, here or in a linked file.

    Args:
        model: The file.
        sharded: Also where each core has a part of the model alone.
    """
    for part in (model, *model.linked):
        for call in part.calls(*MADE):
            asked = for_xla(part, call)
            parts = asked is not None and (
                class_of(part, asked) in _SHARDED or part.literal(asked) == "xla_fsdp"
            )
            if asked is not None and (sharded or not parts) and several_cores(part, call):
                return call
    return None


def feeds_itself(model: FileModel) -> bool:
    """Whether a program with Fabric keeps its loaders to itself, and makes device loaders of them.

    What ``fabric.setup_dataloaders`` has not seen Fabric neither shares out nor tells the epoch.
    """
    parts = (model, *model.linked)
    return (
        model.led_by == {"lightning"}
        and any(True for part in parts for _ in part.calls(*MADE))
        and any(True for part in parts for _ in part.calls(*_DEVICE_LOADERS))
        and not any(True for part in parts for _ in part.methods("setup_dataloaders"))
    )


def launched(model: FileModel, function: Function, depth: int = _DEPTH) -> Function | None:
    """The function that ``fabric.launch(run)`` starts on each core, and that calls this one."""
    if function in model.once(_launched):
        return function
    callers = model.callers(function) if depth else ()
    around = (call.function for call in callers)
    found = (launched(model, one, depth - 1) for one in around if one is not None)
    return next((one for one in found if one is not None), None)


def _launched(model: FileModel) -> frozenset[Function]:
    given = (
        part.value(call.positional[0]).function
        for part in (model, *model.linked)
        for call in part.methods("launch")
        if call.positional and call.receiver is not None and is_fabric(part, call.receiver)
    )
    return frozenset(function for function in given if function is not None)


def is_fabric(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether an expression is Fabric, by its value or by what programs call it."""
    last = last_name(node).lower()
    return model.value(node).type_name == frameworks.FABRIC_CLASS or last in frameworks.FABRICS


def clips_of_fabric(model: FileModel) -> Iterator[CallSite]:
    """``fabric.clip_gradients(...)`` by a norm (not by a value, which looks at no gradients)."""
    for call in model.methods("clip_gradients"):
        if call.receiver is None or "max_norm" not in call.keywords:
            continue
        if is_fabric(model, call.receiver):
            yield call
