"""XLA905: settings of the transformers Trainer that hurt or fail on XLA devices."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, OnXla, walk
from xladoctor.lint.model.frameworks import TRAINER_CALLBACKS, TRAINERS
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._callback_keywords import gone_keywords
from xladoctor.lint.rules._called_with import misfits
from xladoctor.lint.rules._checkpointing import made_to_work, meant_for_xla
from xladoctor.lint.rules._fused import FUSED, fused_by_classes, fused_by_dictionaries, takes_fused
from xladoctor.lint.rules._given import all_given, argument, given
from xladoctor.lint.rules._handed_over import is_trainer
from xladoctor.lint.rules._itself import whose
from xladoctor.lint.rules._names_gone import is_own_copy, names_gone
from xladoctor.lint.rules._neuron_trainer import refused, uneven
from xladoctor.lint.rules._questions import gone_questions, old_questions
from xladoctor.lint.rules._sources import sources, the_call
from xladoctor.lint.rules._streams import trains_on_stream
from xladoctor.lint.rules._trainer_gone import (
    RENAMED,
    gone_arguments,
    gone_attributes,
    gone_elsewhere,
    gone_keys,
    gone_methods,
    ignored_padding,
    lacks,
    old_methods,
)
from xladoctor.lint.rules._training_arguments import OF_NEURON, fields, makes_own

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_CHECKPOINTING = "gradient_checkpointing"
#: The Trainers whose own methods call what a class on them writes anew.
_CALLED_BACK = frozenset(x for x in TRAINERS if x.startswith(("transformers.", "trl.")))
#: Costs something on every step, and is needed on no other device either.
_TOKENS = "include_num_input_tokens_seen"
#: Without a batch size nobody knows what the arguments are for.
_TRAINS = "per_device_train_batch_size"
_ARGUMENTS = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
#: Arguments of Trainers that are built on it: ``trl.SFTConfig(logging_steps=1)``.
_OF_TRL = re.compile(r"^trl\.(\w+\.)*[A-Z]\w*Config$")
_BUILT_ON = re.compile(
    _OF_TRL.pattern + r"|^(optimum\.tpu|sentence_transformers)\.(\w+\.)*\w*TrainingArguments$"
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Setting:
    """An argument that hurts or fails.

    Attributes:
        keyword: Its name.
        values: The literals that are a problem, as ``repr`` writes them; None: any.
        what: What happens.
        instead: What to do.
        written: What the fix writes in its place (keyword and value, "" for the value as it is);
            None: it is removed.
        safe: Whether the fix changes nothing but that.
        since: The release of transformers that fails; "" where it is the device that does.
    """

    keyword: str
    values: tuple[str, ...] | None
    what: str
    instead: str
    written: tuple[str, str] | None = None
    safe: bool = False
    since: str = ""


_SETTINGS = (
    _Setting(
        _CHECKPOINTING,
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
        "train_sampling_strategy",
        ("'group_by_length'",),
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
        _TOKENS,
        ("True", "'all'", "'non_padding'"),
        "the Trainer gathers the number of tokens of every batch over all cores and reads it",
        "leave it out: tokens that a batch of fixed shape has are known without asking",
    ),
    _Setting(
        "tpu_num_cores",
        None,
        "transformers 5 removed it, and before it chose nothing: spawn starts all cores",
        "leave it out",
        safe=True,
        since="5.0",
    ),
    _Setting(
        "tpu_metrics_debug",
        None,
        "it is a deprecated switch that prints a metrics report on every logging step",
        "leave it out; use xladoctor profile",
    ),
    _Setting(
        "evaluation_strategy",
        None,
        "transformers 4.46 renamed it: this raises TypeError",
        "eval_strategy=",
        ("eval_strategy", ""),
        safe=True,
        since="4.46",
    ),
    _Setting(
        "no_cuda",
        None,
        "transformers 5 removed it: this raises TypeError; with torch_xla it chose nothing",
        "leave it out",
        safe=True,
        since="5.0",
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
#: What raises on all devices, so it does not matter for which of them a line is.
_LOST = frozenset(setting.keyword for setting in _SETTINGS if setting.since)
#: Packages whose Trainers and adapters stand on transformers.
_BESIDE = ("trl", "peft", "optimum.neuron")


@rule("XLA905")
def trainer_tpu_arguments(model: FileModel) -> Iterator[Problem]:
    """Find ``TrainingArguments`` of programs for XLA devices with such settings."""
    files = (model, *model.linked)
    copied = any(one.holds_copy_of("transformers") for one in files)
    released = not copied and not is_own_copy(model, "transformers")
    if not model.is_xla:
        asked = [*gone_questions(model, "transformers")] if released else []
        yield from asked
        yield from _lost(model) if asked else ()
        return
    yield from _lost(model) if released else ()
    yield from _defaults(model)
    yield from fused_by_dictionaries(model)
    yield from fused_by_classes(model)
    handed = _handed(model)
    for call in model.calls():
        own = call.name in _ARGUMENTS or call.node in handed or makes_own(model, call)
        if not (own or _BUILT_ON.search(call.name or "")):
            continue
        if model.on_xla(call.node) is OnXla.NO:
            continue
        named = {
            # What a dictionary is given for TPUs is meant for them, wherever it is unpacked.
            name: value
            for name, value in given(model, call).items()
            if not own
            or name in _LOST
            or not model.is_here(value)
            or model.on_xla(value) is OnXla.YES
            or (name == _TOKENS and meant_for_xla(model, value))
        }
        yield from _given(model, call, named)
        sure = (own or _of_trl(call)) and meant_for_xla(model, call.node)
        all_named = {*given(model, call)}
        if sure and all_given(model, call) and _TRAINS in all_named:
            yield from _missing(model, call, all_named)


def _lost(model: FileModel) -> Iterator[Problem]:
    """What newer releases of transformers no longer have, or call otherwise."""
    yield from _old_names(model)
    yield from gone_arguments(model)
    if not model.keeps_old("transformers"):
        yield from gone_attributes(model)
        yield from gone_keys(model)
        yield from gone_keywords(model)
        yield from gone_methods(model)
        yield from gone_elsewhere(model)
        yield from ignored_padding(model)
        yield from old_methods(model)
    yield from refused(model)
    yield from uneven(model)
    yield from misfits(model, "transformers.Trainer", _CALLED_BACK, "the Trainer")
    yield from misfits(model, "transformers.TrainerCallback", TRAINER_CALLBACKS, "the Trainer")
    yield from old_questions(model, "transformers")
    yield from names_gone(model, "transformers")
    for package in _BESIDE:
        if not model.holds_copy_of(package.partition(".")[0]):
            yield from names_gone(model, package)


def _handed(model: FileModel) -> frozenset[cst.CSTNode]:
    """The calls whose results Trainers take as ``args``: of classes built on TrainingArguments."""
    trainers = [call for call in model.calls() if is_trainer(model, call)]
    settings = [argument(model, call, 1, "args") for call in trainers]
    made = [the_call(model, node) for node in settings if node is not None]
    return frozenset(
        call.node
        for call in made
        if call is not None
        and call.last.endswith(("TrainingArguments", "TrainingArgs"))
        and not (call.name or "").startswith(OF_NEURON)
        and (call.target is None or isinstance(call.target, Class))
    )


def _defaults(model: FileModel) -> Iterator[Problem]:
    """``group_by_length: bool = field(default=True)`` in a class built on TrainingArguments."""
    for cls in model.classes:
        if not any(model.name(base) in _ARGUMENTS for base in cls.bases):
            continue
        for line in walk(cls.node.body):
            if not isinstance(line, cst.AnnAssign) or not isinstance(line.target, cst.Name):
                continue
            default = _default(model, line.value)
            if default is not None and model.on_xla(line) is not OnXla.NO:
                yield from _given(model, None, {line.target.value: default})


def _default(model: FileModel, node: cst.BaseExpression | None) -> cst.BaseExpression | None:
    """What a field of a dataclass is unless it is given: ``True``, ``field(default=True)``."""
    if isinstance(node, cst.Call) and model.call(node).name == "dataclasses.field":
        return model.call(node).keywords.get("default")
    return node


def _old_names(model: FileModel) -> Iterator[Problem]:
    """``trainer.is_world_master()``, as transformers called it until 4.0."""
    if model.keeps_old("transformers", "4.0"):
        return
    for call in model.methods(*RENAMED):
        asked = call.node.func
        if not isinstance(asked, cst.Attribute) or whose(model, asked.value) is not None:
            continue
        if lacks(model, asked) and call.method is not None:
            new = RENAMED[call.method]
            yield model.problem(
                call.node,
                f"transformers 4 renamed {call.method}: the Trainer raises AttributeError",
                suggestion=f"{new}()",
            )


def _given(
    model: FileModel, call: CallSite | None, named: Mapping[str, cst.BaseExpression]
) -> Iterator[Problem]:
    if call is not None:
        yield from _sharded(model, named)
    for setting in _SETTINGS:
        value = named.get(setting.keyword)
        if value is None or (setting.keyword == _CHECKPOINTING and made_to_work(model)):
            continue
        if setting.since and model.keeps_old("transformers", setting.since):
            continue
        if setting.values is None or repr(model.literal(value)) in setting.values:
            yield model.problem(
                value,
                f"{setting.keyword} on XLA devices: {setting.what}",
                suggestion=setting.instead,
                fix=_changed(model, call, value, setting)
                if call is not None and setting.keyword in call.keywords
                else None,
            )


def _sharded(model: FileModel, named: Mapping[str, cst.BaseExpression]) -> Iterator[Problem]:
    """``fsdp="full_shard"`` with settings that do not say ``"xla": True``."""
    value, settings = named.get("fsdp"), named.get("fsdp_config")
    if value is None or model.literal(value) in (False, None, "", NotImplemented):
        return
    made = [settings] if settings is not None else []
    if isinstance(settings, cst.Name):
        made = sources(model, settings) or []
    written = [one for one in made if isinstance(one, cst.Dict)]
    if settings is not None and not written:
        return  # a file, or what a function gives
    said = {
        model.literal(element.key)
        for one in written
        for element in one.elements
        if isinstance(element, cst.DictElement)
    }
    starred = any(isinstance(x, cst.StarredDictElement) for one in written for x in one.elements)
    if "xla" not in said and not starred:
        yield model.problem(
            value,
            'without "xla": True in fsdp_config the Trainer wraps the model in FSDP of PyTorch, '
            "which does not run on XLA devices",
            suggestion='fsdp_config={"xla": True, "xla_fsdp_v2": True, ...}',
        )


def _of_trl(call: CallSite) -> bool:
    return _OF_TRL.search(call.name or "") is not None


def _missing(model: FileModel, call: CallSite, named: set[str]) -> Iterator[Problem]:
    """Defaults that hurt; a class of the program may have others."""
    if call.name not in _ARGUMENTS and not isinstance(call.target, Class) and not _of_trl(call):
        return
    if isinstance(call.target, Class):
        named.update(fields(model, call.target))
    on_by_default = _of_trl(call) and not model.keeps_old("trl", "0.20")
    if on_by_default and _CHECKPOINTING not in named and not made_to_work(model):
        yield model.problem(
            call.node.func,
            "TRL turns on gradient checkpointing by default (since 0.20): it calls "
            "torch.utils.checkpoint, which raises AttributeError on XLA tensors",
            suggestion="gradient_checkpointing=False",
            fix=_added(model, call, "gradient_checkpointing=False", safe=False),
        )
    if "dataloader_drop_last" not in named and not trains_on_stream(model):
        yield model.problem(
            call.node.func,
            "the last batch of an epoch may be smaller: a new shape, so the whole step is "
            "compiled a second time",
            suggestion="dataloader_drop_last=True",
            fix=_added(model, call, "dataloader_drop_last=True", safe=False),
        )
    if takes_fused(model, named):
        yield model.problem(
            call.node.func,
            FUSED,
            suggestion='optim="adamw_torch", the same algorithm',
            fix=_added(model, call, 'optim="adamw_torch"', safe=True),
        )


def _changed(
    model: FileModel, call: CallSite, value: cst.BaseExpression, setting: _Setting
) -> Fix | None:
    """Remove an argument, or write another one in its place."""
    if setting.written is None:
        removed = model.remove_argument(call.node, value)
        return model.fix(f"Remove {setting.keyword}", removed, safe=setting.safe)
    keyword, written = setting.written
    argument = call.written_as(value)
    if keyword == setting.keyword:
        edit = model.replace(value, written)
    elif keyword in call.keywords or argument is None or argument.keyword is None:
        return None
    else:
        written = written or model.tree.text(value).strip()
        edit = model.replace(argument, f"{keyword}={written}")
    return model.fix(f"Write {keyword}={written}", edit, safe=setting.safe)


def _added(model: FileModel, call: CallSite, argument: str, *, safe: bool) -> Fix | None:
    return model.fix(f"Add {argument}", model.add_argument(call.node, argument), safe=safe)
