"""What rules about Lightning share: which Trainers are for XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules._constants import constant

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

TRAINERS = ("lightning.pytorch.Trainer", "lightning.fabric.Fabric", "lightning.Fabric")
STRATEGIES = {"tpu_spawn": "xla", "tpu_spawn_debug": "xla_debug"}
#: Classes that 2.0 renamed (#16781).
CLASSES = {"TPUSpawnStrategy": "XLAStrategy", "SingleTPUStrategy": "SingleDeviceXLAStrategy"}
#: Objects that say that the cores are XLA's.
_SAY_XLA = {*CLASSES, *CLASSES.values(), "XLAFSDPStrategy", "TPUAccelerator", "XLAAccelerator"}


def class_of(model: FileModel, value: cst.BaseExpression) -> str | None:
    """The class of Lightning that a value is made of, also through a variable."""
    origin = value if isinstance(value, cst.Call) else model.value(value).origin
    name = model.call(origin).name if isinstance(origin, cst.Call) else None
    return name.rpartition(".")[2] if name and name.startswith("lightning.") else None


def for_xla(model: FileModel, call: CallSite) -> bool:
    """Whether a ``Trainer(...)`` or ``Fabric(...)`` asks for XLA devices."""
    if {"tpu_cores", "num_tpu_cores"} & set(call.keywords):
        return True
    for argument in ("accelerator", "strategy"):
        value = call.keywords.get(argument)
        if value is not None and class_of(model, value) in _SAY_XLA:
            return True
    accelerator = call.keywords.get("accelerator")
    strategy = call.keywords.get("strategy")
    return (accelerator is not None and constant(model, accelerator) in ("tpu", "xla")) or (
        strategy is not None and constant(model, strategy) in (*STRATEGIES, "xla", "xla_debug")
    )
