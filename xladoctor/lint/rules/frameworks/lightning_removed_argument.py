"""XLA901: arguments of Lightning's ``Trainer`` that it no longer takes on TPU, and gone names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.frameworks import LIGHTNING_FOR_XLA, LIGHTNING_PACKAGES
from xladoctor.lint.rewrites.lightning import argument_fix, precision_fix
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._constants import constant, default_of
from xladoctor.lint.rules._fabric_launch import apart
from xladoctor.lint.rules._given import entries, given
from xladoctor.lint.rules._lightning import (
    CLASSES,
    RENAMED,
    TRAINERS,
    class_of,
    each_way,
    for_xla,
    hinges,
    wanted_for_xla,
)
from xladoctor.lint.rules._lightning_gone import FROM_OPTIONS
from xladoctor.lint.rules._names_gone import names_gone, of_classes
from xladoctor.lint.rules._sources import made_in, sources, the_source
from xladoctor.lint.rules._trainers_of_settings import set_beside

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

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
#: Arguments that older releases removed, which Lightning 2.6.6 was asked for.
_OLD = {
    "early_stop_callback": "callbacks=[EarlyStopping(...)]",
    "row_log_interval": "log_every_n_steps=...",
    "log_save_interval": "nothing: loggers decide themselves",
    "flush_logs_every_n_steps": "nothing: loggers decide themselves",
    "distributed_backend": "strategy=...",
    "weights_save_path": "default_root_dir=...",
    "terminate_on_nan": "nothing: detect_anomaly=True looks for them",
    "stochastic_weight_avg": "callbacks=[StochasticWeightAveraging(...)]",
    "log_gpu_memory": "callbacks=[DeviceStatsMonitor()]",
    "process_position": "callbacks=[TQDMProgressBar(process_position=...)]",
    "prepare_data_per_node": "an attribute of that name of the data module",
    "reload_dataloaders_every_epoch": "reload_dataloaders_every_n_epochs=1",
    "multiple_trainloader_mode": "CombinedLoader(loaders, mode)",
    "train_percent_check": "limit_train_batches=...",
    "val_percent_check": "limit_val_batches=...",
    "test_percent_check": "limit_test_batches=...",
    "max_nb_epochs": "max_epochs=...",
    "default_save_path": "default_root_dir=...",
    "add_row_log_interval": "log_every_n_steps=...",
    "gradient_clip": "gradient_clip_val=...",
    "min_nb_epochs": "min_epochs=...",
    "nb_gpu_nodes": "num_nodes=...",
    "nb_sanity_val_steps": "num_sanity_val_steps=...",
    "overfit_pct": "overfit_batches=...",
    "print_nan_grads": "detect_anomaly=True",
    "progress_bar_callback": "enable_progress_bar=... or callbacks=[TQDMProgressBar()]",
    "show_progress_bar": "enable_progress_bar=...",
    "use_amp": "precision=...",
    "automatic_optimization": "an attribute of that name of the module",
    "enable_pl_optimizer": "nothing: it is gone without a replacement",
    "truncated_bptt_steps": "nothing: cut the sequences in training_step",
}
#: Precisions that Lightning's XLAPrecision refuses (it knows 32-true, 16-true and bf16-true).
_REFUSED = (16, "16", "16-mixed", "bf16", "bf16-mixed", 64, "64", "64-true")


#: Names that settings for a Trainer have beside its accelerator.
_OF_TRAINERS = frozenset({"devices", "precision", "strategy", "max_epochs", "max_steps", "logger",
                          "callbacks", "gradient_clip_val", "accumulate_grad_batches"})  # fmt: skip
_CORES = frozenset({"tpu_cores", "num_tpu_cores"})
#: Strategies for other devices, by name and class (Lightning 2.6, accelerator_connector.py).
_ELSEWHERE = re.compile(r"^(ddp|dp$|fsdp|deepspeed|bagua|horovod|modelparallel)")
_CLASSES_ELSEWHERE = ("DDPStrategy", "FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")
_XLA_STRATEGY = re.compile(r"^\w*XLA\w*Strategy$")


@rule("XLA901")
def lightning_removed_argument(model: FileModel) -> Iterator[Problem]:
    """Find arguments that make ``Trainer(...)`` raise, in calls that ask for TPU cores.

    And names that are gone, in programs for XLA devices.
    """
    if model.holds_copy_of(*LIGHTNING_PACKAGES):
        return
    if model.is_xla and "lightning" in model.frameworks:
        yield from names_gone(model, "lightning.pytorch")
        yield from () if model.keeps_old("lightning") else of_classes(model)
        yield from () if model.keeps_old("lightning") else _resumed(model)
        yield from apart(model)
        for name, place in set_beside(model):
            yield from _gone(model, name, place, None)
    told: set[cst.BaseExpression] = set()
    for call in model.calls(*TRAINERS, FROM_OPTIONS):
        settings = call.keywords if call.name == FROM_OPTIONS else given(model, call)
        if wanted_for_xla(model, settings) is None:
            # Options that nobody sees may bring the accelerator along.
            yield from () if call.name == FROM_OPTIONS else _another_device(model, call)
            continue
        told.update(settings.values())
        yield from _refused(model, settings, call)
    for settings in _written(model) if "lightning" in model.frameworks else ():
        if told.isdisjoint(settings.values()):
            yield from _refused(model, settings, None)


def _written(model: FileModel) -> Iterator[dict[str, cst.BaseExpression]]:
    """``{"accelerator": "tpu", "precision": 16}``: settings for a Trainer that is made elsewhere.

    ``cfg["trainer"].update(...)`` of a configuration that is a module, for one.
    """
    named = {}
    for line in model.nodes(cst.Assign):
        target = line.targets[0].target
        if isinstance(target, cst.Name):
            named[line.value] = target
    calls = [call.node for call in model.calls("builtins.dict")]
    for node in (*model.nodes(cst.Dict), *calls):
        settings = {
            name: value
            for name, value in entries(model, named.get(node, node))
            if not model.is_here(value) or model.on_xla(value) is not OnXla.NO
        }
        asks = _asks_for_tpu(model, settings) or settings.keys() & _CORES
        if asks and settings.keys() & _OF_TRAINERS:
            yield settings


def _refused(
    model: FileModel, settings: Mapping[str, cst.BaseExpression], call: CallSite | None
) -> Iterator[Problem]:
    """What a Trainer for TPU cores does not take of what it is given.

    Args:
        model: The file.
        settings: What it is given by name.
        call: The Trainer, if it is in sight.
    """
    for name, value in settings.items():
        yield from _gone(model, name, value, call)
        if name == "strategy":
            yield from _of_strategy(model, value, settings, call)
        if name == "devices":
            yield from _devices(model, value, settings)
        if name == "precision":
            chosen = _chosen(model, value)
            yield from _precision(model, default_of(model, chosen) or chosen)


def _gone(
    model: FileModel, name: str, value: cst.BaseExpression, call: CallSite | None
) -> Iterator[Problem]:
    """An argument that no Trainer takes any more."""
    if name in _OLD and not model.keeps_old("lightning"):
        yield model.problem(
            value,
            f"Lightning 2 no longer has {name}: Trainer raises TypeError",
            suggestion=f"write {_OLD[name]}",
        )
    release, instead = _REMOVED.get(name, ("", ""))
    if release and not model.keeps_old("lightning", release):
        here = call is not None and name in call.keywords
        yield model.problem(
            value,
            f"Lightning {release} removed {name}: Trainer raises TypeError",
            suggestion=f"write {instead}",
            fix=argument_fix(model, call, name) if here and call is not None else None,
        )


def _of_strategy(
    model: FileModel,
    value: cst.BaseExpression,
    settings: Mapping[str, cst.BaseExpression],
    call: CallSite | None,
) -> Iterator[Problem]:
    has_old = model.keeps_old("lightning")
    for one in _ways(model, value):
        literal = constant(model, one)
        if isinstance(literal, str) and literal in RENAMED and not has_old:
            new = RENAMED[literal]
            yield model.problem(
                one,
                f'Lightning 2.0 renamed strategy="{literal}": Trainer raises ValueError',
                suggestion=f'write strategy="{new}"',
                fix=_strategy_fix(model, one, new),
            )
        if is_name(one, "None") and not has_old and model.on_xla(one) is not OnXla.NO:
            yield model.problem(
                one,
                "Lightning 2.0 no longer takes None for a strategy: Trainer raises ValueError",
                suggestion='"auto", or "xla"',
            )
    if _is_refused(model, value) and (
        _asks_for_tpu(model, settings) or (call is not None and _always(model, settings, call))
    ):
        yield model.problem(
            value,
            "Lightning's TPU accelerator takes XLA's strategies alone: Trainer raises ValueError",
            suggestion='leave strategy out, or write strategy="xla"',
        )
    made = class_of(model, value)
    if made in CLASSES and not has_old:
        yield model.problem(
            value,
            f"Lightning 2.0 renamed {made} to {CLASSES[made]}: the import of the old name fails",
            suggestion=f"from lightning.pytorch.strategies import {CLASSES[made]}",
        )


def _devices(
    model: FileModel, value: cst.BaseExpression, settings: Mapping[str, cst.BaseExpression]
) -> Iterator[Problem]:
    """Numbers of cores that no host has, and texts that name no number: ``"xla:1"``."""
    for one in _ways(model, value):
        literal = constant(model, one)
        names_xla = isinstance(literal, str) and literal.startswith(("xla", "tpu"))
        if names_xla or (
            one is value and _is_no_number(literal) and _asks_for_tpu(model, settings)
        ):
            yield model.problem(
                one,
                f"on TPUs devices is 1, all cores of the host or a list of one: Trainer raises "
                f"ValueError for {literal!r}",
                suggestion='devices="auto"',
            )


def _ways(model: FileModel, value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What branches give a name, each where it is written; the value itself if that is one."""
    each = each_way(model, value)
    return [one for one in each if model.is_here(one)] if len(each) > 1 else [value]


def _resumed(model: FileModel) -> Iterator[Problem]:
    """``trainer.resume_from_checkpoint = path``, which nothing reads any more."""
    for line in model.nodes(cst.Assign):
        for target in line.targets:
            place = target.target
            if isinstance(place, cst.Attribute) and place.attr.value == "resume_from_checkpoint":
                trainer = made_in(model, place.value, TRAINERS)
                if trainer is not None and for_xla(model, trainer):
                    yield model.problem(
                        place,
                        "Lightning 2 reads no resume_from_checkpoint of a Trainer: the training "
                        "starts anew",
                        suggestion="trainer.fit(model, ckpt_path=...)",
                    )


def _asks_for_tpu(model: FileModel, settings: Mapping[str, cst.BaseExpression]) -> bool:
    """Whether the accelerator is TPUs, and nothing else by a choice of the program.

    A strategy for XLA chooses it where nothing else does.
    """
    value = settings.get("accelerator")
    if value is not None and constant(model, value) != "auto":
        return constant(model, value) in ("tpu", "xla")
    strategy = settings.get("strategy")
    return strategy is not None and class_of(model, strategy) in LIGHTNING_FOR_XLA


def _always(model: FileModel, settings: Mapping[str, cst.BaseExpression], call: CallSite) -> bool:
    """``accelerator="tpu" if on_tpu else "auto"`` beside a strategy that nothing chooses."""
    accelerator, strategy = settings.get("accelerator"), settings["strategy"]
    if accelerator is None or hinges(model, strategy, call):
        return False
    written = isinstance(model.literal(strategy), str) or isinstance(strategy, cst.Call)
    each = sources(model, accelerator) or ()
    return written and any(model.literal(one) in ("tpu", "xla") for one in each)


def _is_refused(model: FileModel, value: cst.BaseExpression) -> bool:
    """Strategies that are for other devices: "ddp", "fsdp", ``DDPStrategy(...)``."""
    literal = constant(model, value)
    if isinstance(literal, str):
        return _ELSEWHERE.match(literal) is not None
    made = class_of(model, value)
    return made is not None and made in _CLASSES_ELSEWHERE


def _is_no_number(literal: object) -> bool:
    """Whether no host of TPUs has so many cores: they have one, two, four or eight."""
    number = isinstance(literal, int) and not isinstance(literal, bool)
    return number and literal not in (-1, 1, 2, 4, 8)


def _another_device(model: FileModel, call: CallSite) -> Iterator[Problem]:
    """``Trainer(accelerator="gpu")`` in a file that makes a strategy for XLA and never gives it."""
    named = given(model, call)
    value = named.get("accelerator")
    if value is None or "strategy" in named or constant(model, value) not in ("gpu", "cuda"):
        return
    made = next((one for one in model.calls() if _XLA_STRATEGY.match(one.last)), None)
    if made is not None and model.on_xla(call.node) is OnXla.YES:
        yield model.problem(
            value,
            "this asks for a GPU, and the strategy for XLA devices that the file makes is never "
            "given: Trainer raises MisconfigurationException where there is no GPU",
            suggestion='accelerator="tpu", and strategy=the strategy',
            related=[model.place(made.node, "made here, and not given")],
        )


def _chosen(model: FileModel, value: cst.BaseExpression) -> cst.BaseExpression:
    """What ``16 if args.fp16 else 32`` gives by default, behind ``if args.fp16:`` or on TPUs."""
    whole, value = value, the_source(model, value)
    if not isinstance(value, cst.IfExp):
        return whole
    for side, other in ((value.body, value.orelse), (value.orelse, value.body)):
        if model.on_xla(other) is OnXla.NO:
            return side
    asked = model.tree.text(value.test).strip()
    for guard in model.guards(value):
        if model.tree.text(guard.written).strip() == asked:
            return value.body if guard.inside else value.orelse
    said = model.literal(default_of(model, value.test) or value.test)
    return value.body if said is True else value.orelse if said is False else value


def _precision(model: FileModel, value: cst.BaseExpression) -> Iterator[Problem]:
    literal = model.literal(value)
    fix = precision_fix(model, value)
    if literal in _REFUSED and not model.keeps_old("lightning"):
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
