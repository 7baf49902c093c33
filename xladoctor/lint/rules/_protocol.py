"""What rules about the step protocol share: who ends a graph, who reduces gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.effects import OPTIMIZER_STEP
from xladoctor.lint.library import Effect
from xladoctor.lint.model import Class, Kind
from xladoctor.lint.model.knowledge import FSDP_CLASS

__all__ = [
    "EAGER",
    "OPTIMIZER_STEP",
    "REDUCE",
    "by_scaler",
    "compiles",
    "makes_optimizer",
    "reduces_gradients",
    "steps_optimizer",
]

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from xladoctor.lint.model import CallSite, FileModel

REDUCE = "torch_xla.core.xla_model.reduce_gradients"
EAGER = "torch_xla.experimental.eager_mode"
ALL_REDUCE = ("torch_xla.core.xla_model.all_reduce",)

#: Names (and beginnings of names) of what compiles or runs the step by itself.
_COMPILES = (
    "torch_xla.compile",
    EAGER,
    "torch_xla.experimental.compile",
    "torch_xla.experimental.eager",
    "torch_xla.experimental.stablehlo",
    "torch_xla.step",
    "torch.compile",
)
#: Methods of gradient scalers that get the optimizer.
_BY_SCALER = frozenset({"step", "unscale_"})
#: Names of wrappers that reduce gradients (or shard them) in the backward pass.
_REDUCERS = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.distributed.fsdp.",
    "torch_xla.distributed.fsdp.",
    "torch_xla.distributed.xla_fully_sharded_data_parallel",
    "torch_xla.distributed.zero_redundancy_optimizer.",
    "torch_xla.distributed.data_parallel.",
    "torch_xla.distributed.spmd.",
    "torch_xla.experimental.xla_sharding",
    "torch_xla.experimental.spmd_fully_sharded_data_parallel",
    "torch_xla.core.xla_model.all_reduce",
    "torch_xla.core.xla_model.reduce_gradients",
    "torch_xla.core.xla_model.optimizer_step",
    "torch.distributed.all_reduce",
    "neuronx_distributed",
    "deepspeed",
    "horovod",
    "ignite.distributed.auto_optim",
    "fairseq",
)


def compiles(model: FileModel) -> bool:
    """Whether the file hands steps to something that ends the graph by itself."""
    return any(name is not None and name.startswith(_COMPILES) for name in _all_names(model))


def reduces_gradients(model: FileModel, beside: Collection[str] = ()) -> bool:
    """Whether anything in the file reduces gradients over the cores, in whatever way.

    Args:
        model: The file.
        beside: Names that do not count.
    """
    names = {*_all_names(model), *model.names.imported()} - {None, *beside}
    known = [name for name in names if name is not None]
    return any(x.startswith(_REDUCERS) or x.endswith(f".{FSDP_CLASS}") for x in known)


def takes_step(model: FileModel, call: CallSite) -> bool:
    """``optimizer.step()`` and ``xm.optimizer_step(optimizer)``."""
    return call.name == OPTIMIZER_STEP or steps_optimizer(model, call)


def steps_optimizer(model: FileModel, call: CallSite) -> bool:
    """``optimizer.step()``, however the optimizer is called."""
    return call.name is None and any(
        event.effect is Effect.OPTIMIZER_STEP for event in model.effects.by_call(call)
    )


def by_scaler(model: FileModel, call: CallSite) -> bool:
    """``scaler.step(optimizer)`` and ``scaler.unscale_(optimizer)`` of a gradient scaler.

    The first takes the step: always where it is off, and unless a gradient overflowed where it is
    on. Neither ends the graph.
    """
    if call.method not in _BY_SCALER or call.receiver is None or call.target is not None:
        return False
    given = call.argument(0, "optimizer")
    if given is None or model.value(given).kind is not Kind.OPTIMIZER:
        return False
    of = (model.value(call.receiver).type_name or "").rpartition(".")[2]
    return of == "GradScaler" or "scaler" in model.tree.text(call.receiver).lower()


def _all_names(model: FileModel) -> Iterator[str | None]:
    for call in model.calls():
        yield call.name
    for function in model.functions:
        for decorator in function.decorators:
            yield model.name(decorator.func if isinstance(decorator, cst.Call) else decorator)
    for cls in model.classes:
        for base in cls.bases:
            yield model.name(base)


def makes_optimizer(model: FileModel, call: CallSite) -> bool:
    """Whether a call makes an optimizer, of torch's or of a class of the program."""
    own = isinstance(call.target, Class) and model.is_optimizer(call.target)
    return own or model.value(call.node).kind is Kind.OPTIMIZER
