"""XLA905: settings of the transformers Trainer that hurt or fail on XLA devices."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from xladoctor.lint.model import OnXla
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_ARGUMENTS = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
#: Arguments of Trainers that are built on it: ``trl.SFTConfig(logging_steps=1)``.
_BUILT_ON = re.compile(
    r"^trl\.(\w+\.)*[A-Z]\w*Config$|^(optimum\.tpu|sentence_transformers)\.(\w+\.)*\w*TrainingArguments$"
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Setting:
    """An argument that hurts or fails.

    Attributes:
        keyword: Its name.
        values: The literals that are a problem, as ``repr`` writes them; None: any.
        what: What happens.
        instead: What to do.
        written: What the fix writes in its place (keyword and value); None: it is removed.
        safe: Whether the fix changes nothing but that.
    """

    keyword: str
    values: tuple[str, ...] | None
    what: str
    instead: str
    written: tuple[str, str] | None = None
    safe: bool = False


_SETTINGS = (
    _Setting(
        "gradient_checkpointing",
        ("True",),
        "it calls torch.utils.checkpoint, which raises AttributeError on XLA tensors",
        "leave it out, or wrap the layers in torch_xla.utils.checkpoint.checkpoint",
    ),
    _Setting("fp16", ("True",), "TPUs have no float16 training", "bf16=True", ("bf16", "True")),
    _Setting(
        "group_by_length",
        ("True",),
        "it makes batches of similar, so of many different lengths: each is compiled",
        "pad all samples to one length (padding='max_length')",
    ),
    _Setting(
        "logging_steps",
        ("1",),
        "the Trainer reads the loss on the host on every step to log it",
        "logging_steps=50",
        ("logging_steps", "50"),
    ),
    _Setting(
        "tpu_num_cores",
        None,
        "transformers 5 removed it, and before it chose nothing: spawn starts all cores",
        "leave it out",
        safe=True,
    ),
    _Setting(
        "tpu_metrics_debug",
        None,
        "it is a deprecated switch that prints a metrics report on every logging step",
        "leave it out; use xladoctor profile",
    ),
    _Setting(
        "optim",
        ("'adamw_torch_fused'",),
        "the fused AdamW of torch refuses tensors of XLA devices",
        'optim="adamw_torch"',
        ("optim", '"adamw_torch"'),
        safe=True,
    ),
)
#: The first torch with which transformers (since July 2025) takes the fused AdamW by itself.
_FUSED_SINCE = (2, 8)


@rule("XLA905")
def trainer_tpu_arguments(model: FileModel) -> Iterator[Problem]:
    """Find ``TrainingArguments`` of programs for XLA devices with such settings."""
    if not model.is_xla:
        return
    for call in model.calls():
        own = call.name in _ARGUMENTS
        if not (own or _BUILT_ON.search(call.name or "")):
            continue
        runs = model.on_xla(call.node)
        if runs is OnXla.NO or (own and runs is OnXla.MAYBE):
            continue
        yield from _given(model, call)
        if own and not call.has_star and _trains(call):
            yield from _missing(model, call)


def _given(model: FileModel, call: CallSite) -> Iterator[Problem]:
    for setting in _SETTINGS:
        value = call.keywords.get(setting.keyword)
        if value is None:
            continue
        if setting.values is None or repr(model.literal(value)) in setting.values:
            yield model.problem(
                value,
                f"{setting.keyword} on XLA devices: {setting.what}",
                suggestion=setting.instead,
                fix=_changed(model, call, value, setting),
            )


def _missing(model: FileModel, call: CallSite) -> Iterator[Problem]:
    if "dataloader_drop_last" not in call.keywords:
        yield model.problem(
            call.node.func,
            "the last batch of an epoch may be smaller: a new shape, so the whole step is "
            "compiled a second time",
            suggestion="dataloader_drop_last=True",
            fix=_added(model, call, "dataloader_drop_last=True", safe=False),
        )
    takes_default = "optim" not in call.keywords and not _own_optimizer(model)
    if takes_default and model.target >= _FUSED_SINCE:
        yield model.problem(
            call.node.func,
            "without optim= the Trainer takes torch's fused AdamW (transformers since 4.54, with "
            "torch 2.8 and later), which refuses tensors of XLA devices",
            suggestion='optim="adamw_torch", the same algorithm',
            fix=_added(model, call, 'optim="adamw_torch"', safe=True),
        )


def _trains(call: CallSite) -> bool:
    """A batch size is given: without one nobody knows what the arguments are for."""
    return "per_device_train_batch_size" in call.keywords


def _own_optimizer(model: FileModel) -> bool:
    """Whether a Trainer of the file gets its optimizer in another way."""
    return any("optimizers" in call.keywords for call in model.calls()) or any(
        "create_optimizer" in cls.methods for cls in model.classes
    )


def _changed(
    model: FileModel, call: CallSite, value: cst.BaseExpression, setting: _Setting
) -> Fix | None:
    """Remove an argument, or write another one in its place."""
    if setting.written is None:
        removed = model.remove_argument(call.node, value)
        return model.fix(f"Remove {setting.keyword}", removed, safe=setting.safe)
    keyword, written = setting.written
    argument = next(one for one in call.node.args if one.value is value)
    if keyword == setting.keyword:
        edit = model.replace(value, written)
    elif keyword in call.keywords or argument.keyword is None:
        return None
    else:
        edit = model.replace(argument, f"{keyword}={written}")
    return model.fix(f"Write {keyword}={written}", edit, safe=setting.safe)


def _added(model: FileModel, call: CallSite, argument: str, *, safe: bool) -> Fix | None:
    return model.fix(f"Add {argument}", model.add_argument(call.node, argument), safe=safe)
