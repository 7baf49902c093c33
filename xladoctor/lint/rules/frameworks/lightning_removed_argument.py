"""XLA901: arguments of Lightning's ``Trainer`` that it no longer takes on TPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rewrites.lightning import argument_fix, precision_fix
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._constants import constant, default_of
from xladoctor.lint.rules._exact import around
from xladoctor.lint.rules._lightning import CLASSES, RENAMED, TRAINERS, class_of, for_xla

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel, Problem

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
    "auto_scale_batch_size": ("2.0", "Tuner(trainer).scale_batch_size(model)"),
    "auto_lr_find": ("2.0", "Tuner(trainer).lr_find(model)"),
    "amp_backend": ("2.0", "precision=..."),
    "amp_level": ("2.0", "precision=..."),
    "track_grad_norm": ("2.0", "log it in on_before_optimizer_step"),
    "move_metrics_to_cpu": ("2.0", "nothing: it is gone without a replacement"),
}
#: Classes that are gone: what came in their place.
_GONE = {
    "TPUSpawnPlugin": "XLAStrategy",
    "SingleTPUPlugin": "SingleDeviceXLAStrategy",
    "TPUPrecisionPlugin": "XLAPrecision",
    "TPUBf16PrecisionPlugin": "XLAPrecision",
}
#: Precisions that Lightning's XLAPrecision refuses (it knows 32-true, 16-true and bf16-true).
_REFUSED = (16, "16", "16-mixed", "bf16", "bf16-mixed", 64, "64", "64-true")


@rule("XLA901")
def lightning_removed_argument(model: FileModel) -> Iterator[Problem]:
    """Find arguments that make ``Trainer(...)`` raise, in calls that ask for TPU cores.

    And imports of classes for TPUs that are gone.
    """
    yield from _gone(model)
    for call in model.calls(*TRAINERS):
        if not for_xla(model, call):
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
            literal = constant(model, value)
            if name == "strategy" and isinstance(literal, str) and literal in RENAMED:
                new = RENAMED[literal]
                yield model.problem(
                    value,
                    f'Lightning 2.0 renamed strategy="{literal}": Trainer raises ValueError',
                    suggestion=f'write strategy="{new}"',
                    fix=_strategy_fix(model, value, new),
                )
            made = class_of(model, value) if name == "strategy" else None
            if made in CLASSES:
                yield model.problem(
                    value,
                    f"Lightning 2.0 renamed {made} to {CLASSES[made]}: the import of the old name "
                    "fails",
                    suggestion=f"from lightning.pytorch.strategies import {CLASSES[made]}",
                )
            if name == "precision":
                yield from _precision(model, default_of(model, value) or value)


def _gone(model: FileModel) -> Iterator[Problem]:
    """``from pytorch_lightning.plugins import TPUSpawnPlugin``, for good."""
    for line in model.nodes(cst.ImportFrom):
        names = () if isinstance(line.names, cst.ImportStar) else line.names
        module = model.tree.text(line.module) if line.module is not None else ""
        tried = any(isinstance(node, cst.Try) for node in around(model, line))
        if tried or not module.startswith(("pytorch_lightning", "lightning")):
            continue
        for alias in names:
            new = _GONE.get(model.tree.text(alias.name).strip())
            if new is not None:
                yield model.problem(
                    alias,
                    f"Lightning has no {model.tree.text(alias.name).strip()} any more (strategies "
                    "took its place in 1.6): the import fails",
                    suggestion=f"use lightning.pytorch's {new}",
                )


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


def _strategy_fix(model: FileModel, value: cst.BaseExpression, new: str) -> Fix | None:
    """The new name, where the old one is written in the call."""
    if model.literal(value) is NotImplemented:
        return None
    return model.fix(f'Write "{new}"', model.replace(value, f'"{new}"'), safe=True)
