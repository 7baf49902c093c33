"""What rules about Lightning share: which calls ask it for XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.model.frameworks import LIGHTNING_FOR_XLA
from xladoctor.lint.rules._constants import constant, is_number_option, of_settings, option_defaults
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._given import entries, given
from xladoctor.lint.rules._lightning_gone import FROM_OPTIONS
from xladoctor.lint.rules._lightning_hooks import logs
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import UnionType

    from xladoctor.lint.model import CallSite, Class, FileModel
    from xladoctor.lint.model.values import Value

#: Lightning's own command line.
COMMAND_LINES = (
    "lightning.pytorch.cli.LightningCLI",
    "lightning.pytorch.utilities.cli.LightningCLI",
)
TRAINERS = ("lightning.pytorch.Trainer", "lightning.fabric.Fabric", "lightning.Fabric")
#: What a core may have computed of its own batches: ``f1_score(labels, predictions)``.
_OF_CORE = frozenset({Kind.NUMBER, Kind.ARRAY, Kind.UNKNOWN})
#: What asks for more than one core wherever it runs, as the number of them.
_NUMBERS = ("4", "8", 2, 4, 8, 16, 32)
#: The same, and what asks for all that there are.
_ALL_CORES = ("auto", "-1", -1, *_NUMBERS)
#: Names of strategies that 2.0 renamed.
RENAMED = {"tpu_spawn": "xla", "tpu_spawn_debug": "xla_debug"}
#: Classes that 2.0 renamed (#16781), without leaving the old name (as ``SingleTPUStrategy``).
CLASSES = {"TPUSpawnStrategy": "XLAStrategy"}


def class_of(model: FileModel, value: cst.BaseExpression) -> str | None:
    """The class of Lightning that a value is made of, also through a variable."""
    origin = value if isinstance(value, cst.Call) else model.value(value).origin
    name = model.call(origin).name if isinstance(origin, cst.Call) else None
    return name.rpartition(".")[2] if name and name.startswith("lightning.") else None


def for_xla(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """What asks for XLA devices in a call of the Trainer or of Fabric; None if nothing does."""
    settings = _settings(model, call)
    wanted = wanted_for_xla(model, settings)
    if wanted is None and model.meant_for_tpus and {"accelerator", "gpus"}.isdisjoint(settings):
        return call.node  # "auto" by default
    return wanted


def wanted_for_xla(
    model: FileModel, settings: Mapping[str, cst.BaseExpression]
) -> cst.BaseExpression | None:
    """The same of settings for one, wherever they are written.

    With "auto" Lightning takes TPUs before other devices; a program for any says no more than that,
    one that is called ``train_tpu.py`` means these.
    """
    for name in ("tpu_cores", "num_tpu_cores"):
        if name in settings and not _is_none(model, settings[name]):
            return settings[name]
    for name, words in (
        ("accelerator", {"tpu", "xla"}),
        ("strategy", {*RENAMED, "xla", "xla_debug", "xla_fsdp"}),
    ):
        value = settings.get(name)
        if value is not None and (
            any(class_of(model, one) in LIGHTNING_FOR_XLA for one in each_way(model, value))
            or any(one in words for one in _choices(model, value))
        ):
            return value
    asked = settings.get("accelerator")
    auto = asked is not None and "auto" in _choices(model, asked)
    return asked if auto and model.meant_for_tpus else None


def _is_none(model: FileModel, value: cst.BaseExpression) -> bool:
    """``tpus = None`` of a program that asks for GPUs, whatever way it takes."""
    each = sources(model, value)
    return bool(each) and all(model.literal(one) is None for one in each or ())


def devices_of_trainers(model: FileModel) -> set[cst.BaseExpression]:
    """All that a file gives Lightning as ``devices``, each way: numbers and lists, no devices."""
    settings = (given(model, call) for call in model.calls(*TRAINERS))
    named = [one["devices"] for one in settings if "devices" in one]
    return {one for devices in named for one in each_way(model, devices)}


def chooses_devices(model: FileModel) -> bool:
    """Whether the Trainers of a file run on other devices too.

    One that nothing tells to use XLA devices, or which some setting does (``tpu_cores=8 if tpu else
    None``, ``Trainer(tpu_cores=tpus, gpus=gpus)``, ``settings["tpu_cores"] = 8`` under an ``if``).
    Of a file without any the settings of its project choose.
    """
    trainers = list(model.calls(*TRAINERS))
    if not trainers and model.started.on_others:
        return True
    return any(
        "gpus" in (settings := _settings(model, call))
        or (wanted := wanted_for_xla(model, settings)) is None
        or hinges(model, wanted, call)
        or not all(_is_for_xla(model, one) for one in each_way(model, wanted))
        for call in trainers
    )


def hinges(model: FileModel, wanted: cst.BaseExpression, call: CallSite) -> bool:
    """Whether a setting is made under a condition that the Trainer is not made under."""
    around = {guard.node for guard in model.guards(call.node)}
    return model.function_of(wanted) is call.function and any(
        guard.node not in around for guard in model.guards(wanted)
    )


def _is_for_xla(model: FileModel, wanted: cst.BaseExpression) -> bool:
    """Whether one of the values that a Trainer may be given asks for XLA devices."""
    said = constant(model, wanted)
    return said is not None and said not in {"auto", "cpu", "gpu", "cuda", "mps"}


def _settings(model: FileModel, call: CallSite) -> dict[str, cst.BaseExpression]:
    """What a Trainer is given, also by options with a default and by Lightning's command line."""
    named = given(model, call)
    if call.name == FROM_OPTIONS:
        return {**_defaults(model), **named}
    if call.name in COMMAND_LINES:
        defaults = named.get("trainer_defaults")
        return dict(entries(model, defaults)) if defaults is not None else {}
    return named


def _defaults(model: FileModel) -> dict[str, cst.BaseExpression]:
    """``parser.add_argument("--tpu_cores", default=8)``, ``parser.set_defaults(tpu_cores=8)``."""
    found = dict(option_defaults(model))
    for call in model.methods("set_defaults"):
        found |= call.keywords
    return found


def several_cores(model: FileModel, call: CallSite) -> bool:
    """Whether a Trainer is made for several TPU cores, as far as the program says how many.

    Without a number it takes all that there are; of ``tpus if use_tpu else None`` and of the
    default of an option any number is one. An option that takes any number and has none by
    default is one for them, too.
    """
    named = _settings(model, call)
    devices = named.get("devices", named.get("tpu_cores", named.get("num_tpu_cores")))
    if devices is None:
        return True
    said = _choices(model, devices, str | int)
    if not said and all(is_number_option(model, one) for one in each_way(model, devices)):
        return True
    return any(one in _ALL_CORES for one in said) and 1 not in said


def asks_for_processes(model: FileModel, call: CallSite, *, sharded: bool) -> bool:
    """Whether several XLA devices are asked for whatever the machine has: by strategy or number.

    Args:
        model: The file.
        call: What makes Fabric.
        sharded: Also where each core has a part of the weights.
    """
    named = _settings(model, call)
    asked = wanted_for_xla(model, named)
    if asked is None:
        return False
    strategy = named.get("strategy")
    if strategy is not None:
        classes = {class_of(model, one) for one in each_way(model, strategy)}
        if "XLAStrategy" in classes or {"xla", "xla_debug"} & set(_choices(model, strategy)):
            return True
        if "XLAFSDPStrategy" in classes or "xla_fsdp" in _choices(model, strategy):
            return sharded
    devices = named.get("devices")
    said = _choices(model, devices, str | int) if devices is not None else []
    return any(one in _NUMBERS for one in said) and 1 not in said and strategy is None


def logged_by_each_core(model: FileModel, owner: Class) -> Iterator[CallSite]:
    """``self.log(name, value)`` of a core's own value that is not brought together over the cores.

    Metrics of torchmetrics are, when Lightning asks them.
    """
    for call, _, own in logs(model):
        if own is not owner:
            continue
        synced = call.keywords.get("sync_dist")
        together = synced is not None and model.literal(synced) is not False
        if together or call.has_star:
            continue
        if call.method == "log_dict":
            values = list(_values(model, call.argument(0, "dictionary")))
        else:
            values = [one for one in [call.argument(1, "value")] if one is not None]
        if any(_is_of_core(model.value(one)) for one in values):
            yield call


def _values(model: FileModel, logged: cst.BaseExpression | None) -> Iterator[cst.BaseExpression]:
    """What stands in ``{"val_loss": loss, "val_acc": acc}``, also where a name is bound to it.

    Or what gives a dictionary: ``score(predictions, labels)``.
    """
    for made in assigned(model, logged) if isinstance(logged, cst.Name) else [logged]:
        if isinstance(made, cst.Dict):
            yield from (item.value for item in made.elements if isinstance(item, cst.DictElement))
        elif isinstance(made, cst.Call):
            yield made


def _is_of_core(value: Value) -> bool:
    return value.local and (value.is_device_tensor or value.kind in _OF_CORE)


def beside_torch_tpu(model: FileModel) -> bool:
    """Whether the file imports TorchTPU itself."""
    return any("torch_tpu" in model.tree.text(line) for line in model.tree.imports)


def _choices(
    model: FileModel, value: cst.BaseExpression, kinds: type | UnionType = str
) -> list[object]:
    """The literals that a value may be: ``"tpu"``, ``"tpu" if use_tpu else "cpu"``."""
    literals = [constant(model, one) for one in each_way(model, value)]
    return [one for one in literals if isinstance(one, kinds)]


def each_way(model: FileModel, value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What a value may be: what all ways give, or else what is bound here and the default."""
    found = sources(model, value)
    if found is None and isinstance(value, cst.Name):
        bound = [binding.node for binding in model.bindings(value.value, value)]
        given = [node.default if isinstance(node, cst.Param) else node for node in bound]
        found = [node for node in given if isinstance(node, cst.BaseExpression)]
    each: list[cst.BaseExpression] = []
    for one in found or [value]:
        parts = [one.body, one.orelse] if isinstance(one, cst.IfExp) else []
        whole = of_settings(model, one) if isinstance(one, cst.Attribute) else ()
        each += [part for inner in parts for part in each_way(model, inner)] or whole or [one]
    return each
