"""XLA905: settings of the transformers Trainer that hurt or fail on XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import for_another_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_ARGUMENTS = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
#: Keyword, the literals that are a problem (None: any), what happens, what to write instead.
_SETTINGS: tuple[tuple[str, tuple[str, ...] | None, str, str], ...] = (
    (
        "gradient_checkpointing",
        ("True",),
        "it calls torch.utils.checkpoint, which raises AttributeError on XLA tensors",
        "leave it out, or wrap the layers in torch_xla.utils.checkpoint.checkpoint",
    ),
    ("fp16", ("True",), "TPUs have no float16 training", "bf16=True"),
    (
        "group_by_length",
        ("True",),
        "it makes batches of similar, so of many different lengths: each is compiled",
        "pad all samples to one length (padding='max_length')",
    ),
    (
        "logging_steps",
        ("1",),
        "the Trainer reads the loss on the host on every step to log it",
        "logging_steps=50",
    ),
    (
        "tpu_num_cores",
        None,
        "transformers 5 removed it, and before it chose nothing: spawn starts all cores",
        "leave it out",
    ),
    (
        "tpu_metrics_debug",
        None,
        "it is a deprecated switch that prints a metrics report on every logging step",
        "leave it out; use xladoctor profile",
    ),
)


@rule("XLA905")
def trainer_tpu_arguments(model: FileModel) -> Iterator[Problem]:
    """Find ``TrainingArguments`` of programs for XLA devices with such settings."""
    if not model.is_xla:
        return
    for call in model.calls(*_ARGUMENTS):
        if for_another_device(model, call.node):
            continue
        for keyword, values, what, instead in _SETTINGS:
            given = call.keywords.get(keyword)
            if given is None or (values is not None and repr(model.literal(given)) not in values):
                continue
            yield model.problem(given, f"{keyword} on XLA devices: {what}", suggestion=instead)
        if not call.has_star and "dataloader_drop_last" not in call.keywords and _trains(call):
            yield model.problem(
                call.node,
                "the last batch of an epoch may be smaller: a new shape, so the whole step is "
                "compiled a second time",
                suggestion="dataloader_drop_last=True",
                fix=_fix(model, call),
            )


def _trains(call: CallSite) -> bool:
    """A batch size is given: without one nobody knows what the arguments are for."""
    return "per_device_train_batch_size" in call.keywords


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    return model.fix(
        "Add dataloader_drop_last=True",
        model.add_argument(call.node, "dataloader_drop_last=True"),
        safe=False,
    )
