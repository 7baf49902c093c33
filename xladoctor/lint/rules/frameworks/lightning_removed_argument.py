"""XLA901: arguments of Lightning's ``Trainer`` that it no longer takes on TPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rewrites.lightning import argument_fix, precision_fix
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_TRAINERS = ("lightning.pytorch.Trainer", "lightning.fabric.Fabric", "lightning.Fabric")

#: Removed arguments: the release of Lightning without them (its changelog), what to write instead.
_REMOVED = {
    "num_tpu_cores": ("0.9", 'accelerator="tpu", devices="auto"'),
    "tpu_cores": ("2.0", 'accelerator="tpu", devices="auto"'),
    "gpus": ("2.0", "accelerator=... and devices=..."),
    "ipus": ("2.0", "accelerator=... and devices=..."),
    "num_processes": ("2.0", "accelerator=... and devices=..."),
    "auto_select_gpus": ("2.0", 'devices="auto"'),
    "replace_sampler_ddp": ("2.0", "use_distributed_sampler=..."),
    "resume_from_checkpoint": ("2.0", "trainer.fit(model, ckpt_path=...)"),
    "progress_bar_refresh_rate": ("1.7", "callbacks=[TQDMProgressBar(refresh_rate=...)]"),
    "weights_summary": ("1.7", "enable_model_summary=... or callbacks=[ModelSummary(...)]"),
    "checkpoint_callback": ("1.7", "enable_checkpointing=..."),
}
_STRATEGIES = {"tpu_spawn": "xla", "tpu_spawn_debug": "xla_debug"}
#: Classes that 2.0 renamed (#16781).
_CLASSES = {"TPUSpawnStrategy": "XLAStrategy", "SingleTPUStrategy": "SingleDeviceXLAStrategy"}
#: Objects that say that the cores are XLA's.
_SAY_XLA = {*_CLASSES, *_CLASSES.values(), "XLAFSDPStrategy", "TPUAccelerator", "XLAAccelerator"}
#: Precisions that Lightning's XLAPrecision refuses (it knows 32-true, 16-true and bf16-true).
_REFUSED = (16, "16", "16-mixed", "bf16", "bf16-mixed", 64, "64", "64-true")


@rule("XLA901")
def lightning_removed_argument(model: FileModel) -> Iterator[Problem]:
    """Find arguments that make ``Trainer(...)`` raise, in calls that ask for TPU cores."""
    for call in model.calls(*_TRAINERS):
        if not _for_xla(model, call):
            continue
        for name, value in call.keywords.items():
            if name in _REMOVED:
                release, instead = _REMOVED[name]
                yield model.problem(
                    value,
                    f"Lightning {release} removed {name}: Trainer raises TypeError",
                    suggestion=f"write {instead}",
                    fix=argument_fix(model, call, name),
                )
            literal = model.literal(value)
            if name == "strategy" and isinstance(literal, str) and literal in _STRATEGIES:
                new = _STRATEGIES[literal]
                yield model.problem(
                    value,
                    f'Lightning 2.0 renamed strategy="{literal}": Trainer raises ValueError',
                    suggestion=f'write strategy="{new}"',
                    fix=model.fix(f'Write "{new}"', model.replace(value, f'"{new}"'), safe=True),
                )
            made = _class(model, value) if name == "strategy" else None
            if made in _CLASSES:
                yield model.problem(
                    value,
                    f"Lightning 2.0 renamed {made} to {_CLASSES[made]}: the import of the old name "
                    "fails",
                    suggestion=f"from lightning.pytorch.strategies import {_CLASSES[made]}",
                )
            if name == "precision":
                yield from _precision(model, value)


def _precision(model: FileModel, value: cst.BaseExpression) -> Iterator[Problem]:
    literal = model.literal(value)
    fix = precision_fix(model, value)
    if literal in _REFUSED:
        yield model.problem(
            value,
            f"Lightning 2 knows no precision={literal!r} on XLA devices: Trainer raises ValueError",
            suggestion='write precision="bf16-true" or "32-true"',
            fix=fix,
        )
    elif literal == "16-true":
        yield model.problem(
            value,
            'precision="16-true" sets XLA_USE_F16, which no torch_xla has ever read: the training '
            "runs in float32",
            suggestion='write precision="bf16-true"',
            fix=fix,
        )


def _class(model: FileModel, value: cst.BaseExpression) -> str | None:
    """The class of Lightning that a value is made of, also through a variable."""
    origin = value if isinstance(value, cst.Call) else model.value(value).origin
    name = model.call(origin).name if isinstance(origin, cst.Call) else None
    return name.rpartition(".")[2] if name and name.startswith("lightning.") else None


def _for_xla(model: FileModel, call: CallSite) -> bool:
    if {"tpu_cores", "num_tpu_cores"} & set(call.keywords):
        return True
    for argument in ("accelerator", "strategy"):
        value = call.keywords.get(argument)
        if value is not None and _class(model, value) in _SAY_XLA:
            return True
    accelerator = call.keywords.get("accelerator")
    strategy = call.keywords.get("strategy")
    return (accelerator is not None and model.literal(accelerator) in ("tpu", "xla")) or (
        strategy is not None and model.literal(strategy) in (*_STRATEGIES, "xla", "xla_debug")
    )
