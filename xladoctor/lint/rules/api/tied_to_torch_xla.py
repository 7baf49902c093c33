"""XLA850 to XLA859, TorchTPU readiness: what ties a program to torch_xla. All off by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import string
from xladoctor.lint.rewrites import moving
from xladoctor.lint.rules import _torch_tpu, rule
from xladoctor.lint.rules._environment import settings
from xladoctor.lint.rules._exact import around
from xladoctor.lint.rules._lightning import TRAINERS, beside_torch_tpu, for_xla
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA850")
def torch_xla_import(model: FileModel) -> Iterator[Problem]:
    """Find imports of torch_xla that the program cannot do without."""
    for statement in model.tree.imports:
        if isinstance(statement, cst.ImportFrom):
            module = None if statement.relative else statement.module
            names = [] if module is None else [model.tree.text(module).strip()]
        else:
            names = [model.tree.text(alias.name).strip() for alias in statement.names]
        found = [name for name in names if name == "torch_xla" or name.startswith("torch_xla.")]
        if found and not _in_function(model, statement) and not tolerated(model, statement):
            yield model.problem(
                statement,
                f"{', '.join(found)}: this file cannot be imported where torch_xla is missing",
                suggestion="keep what is torch_xla's in one module, and import that where it runs",
                fix=moving.unused_import(model, statement) if moving.is_moved(model) else None,
            )


@rule("XLA851")
def torch_xla_device(model: FileModel) -> Iterator[Problem]:
    """Find torch_xla's device: its functions, and the string "xla"."""
    yield from _torch_tpu.problems(model, "XLA851")
    instead = next(iter(_device_advice()))
    for node in model.nodes():
        text = _device_string(model, node)
        if text is not None and not tolerated(model, node):
            assert isinstance(node, cst.SimpleString)
            yield model.problem(
                node,
                f'"{text}" is the device of torch_xla alone',
                suggestion=instead,
                fix=moving.device_string(model, node, text),
            )


@rule("XLA852")
def lazy_graph_call(model: FileModel) -> Iterator[Problem]:
    """Find what ends, awaits or compiles lazy graphs."""
    yield from _torch_tpu.problems(model, "XLA852")


@rule("XLA853")
def torch_xla_launch(model: FileModel) -> Iterator[Problem]:
    """Find what starts and numbers the cores, Lightning's Trainer among it."""
    yield from _torch_tpu.problems(model, "XLA853")
    for call in model.calls(*TRAINERS):
        asked = for_xla(model, call)
        if asked is not None and not beside_torch_tpu(model):  # there it is XLA862's
            yield model.problem(
                asked,
                "Lightning's TPU accelerator and XLA strategies are torch_xla's: none for TorchTPU "
                "is published (November 2026)",
                suggestion='a loop of one\'s own on torch.device("tpu"), started by torchrun '
                '(init_process_group("tpu_dist"))',
            )


@rule("XLA854")
def torch_xla_collective(model: FileModel) -> Iterator[Problem]:
    """Find collectives of torch_xla, and its backend of torch.distributed."""
    yield from _torch_tpu.problems(model, "XLA854")
    for call in model.calls("torch.distributed.init_process_group"):
        backend = call.argument(0, "backend")
        if backend is not None and model.literal(backend) == "xla":
            yield model.problem(
                backend,
                'the backend "xla" of torch.distributed is part of torch_xla',
                suggestion='"tpu_dist" on TorchTPU; take the backend from the settings',
                fix=moving.backend_string(model, call.node, backend),
            )


@rule("XLA855")
def torch_xla_loader(model: FileModel) -> Iterator[Problem]:
    """Find loaders of torch_xla."""
    yield from _torch_tpu.problems(model, "XLA855")


@rule("XLA856")
def torch_xla_checkpoint(model: FileModel) -> Iterator[Problem]:
    """Find files that are written in torch_xla's way."""
    yield from _torch_tpu.problems(model, "XLA856")


@rule("XLA857")
def torch_xla_variable(model: FileModel) -> Iterator[Problem]:
    """Find environment variables that only torch_xla reads."""
    for name, spot, _ in settings(model):
        if _torch_tpu.is_variable(name):
            yield model.problem(
                spot,
                f"{name} is read by torch_xla; it is not among the variables of TorchTPU",
                suggestion="set it where the program is started, not in the program",
            )


@rule("XLA858")
def torch_xla_sharding(model: FileModel) -> Iterator[Problem]:
    """Find sharding in torch_xla's way."""
    yield from _torch_tpu.problems(model, "XLA858")


@rule("XLA859")
def torch_xla_internals(model: FileModel) -> Iterator[Problem]:
    """Find what else belongs to torch_xla: metrics, profiler, experimental modules."""
    yield from _torch_tpu.problems(model, "XLA859")


def _in_function(model: FileModel, node: cst.CSTNode) -> bool:
    """Such an import is made when the function runs: the file itself needs nothing."""
    return any(isinstance(parent, cst.FunctionDef) for parent in around(model, node))


def _device_advice() -> Iterator[str]:
    tie = _torch_tpu.tie_of("torch_xla.device")
    if tie is not None:
        yield tie.instead


def _device_string(model: FileModel, node: cst.CSTNode) -> str | None:
    """The literal "xla" or "xla:0" where a device is meant: an argument, or compared with .type."""
    if not isinstance(node, cst.SimpleString):
        return None
    value = string(node)
    if not isinstance(value, str) or value.partition(":")[0] != "xla":
        return None
    parent = model.parent(node)
    if isinstance(parent, cst.Arg):
        return value if _takes_device(model, parent) else None
    if isinstance(parent, cst.ComparisonTarget):
        comparison = model.parent(parent)
        left = comparison.left if isinstance(comparison, cst.Comparison) else None
        is_type = isinstance(left, cst.Attribute) and left.attr.value == "type"
        return value if is_type else None
    return None


def _takes_device(model: FileModel, argument: cst.Arg) -> bool:
    """``device="xla"``, ``x.to("xla")``, ``torch.device("xla")``, ``torch.autocast("xla")``."""
    if argument.keyword is not None:
        return argument.keyword.value in {"device", "device_type", "map_location"}
    call = model.parent(argument)
    if not isinstance(call, cst.Call) or call.args[0] is not argument:
        return False
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "to":
        return True
    name = model.name(call.func)
    return name in {"torch.device", "torch.autocast", "torch.amp.autocast"}
