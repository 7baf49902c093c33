"""What rules about the step protocol share: who ends a graph, who reduces gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

OPTIMIZER_STEP = "torch_xla.core.xla_model.optimizer_step"
REDUCE = "torch_xla.core.xla_model.reduce_gradients"

#: Calls that end the pending graph.
_SYNCS = frozenset(
    {
        "torch_xla.sync",
        "torch_xla.step",
        "torch_xla.core.xla_model.mark_step",
        "torch_xla.core.xla_model.rendezvous",
        "torch_xla.core.xla_model.mesh_reduce",
        "torch_xla.core.xla_model.wait_device_ops",
        "torch_xla.debug.profiler.StepTrace",
        "torch_xla.core.xla_model.save",
    }
)
#: Names (and beginnings of names) of what compiles or runs the step by itself.
_COMPILES = (
    "torch_xla.compile",
    "torch_xla.experimental.eager_mode",
    "torch_xla.experimental.compile",
    "torch_xla.experimental.eager",
    "torch_xla.experimental.stablehlo",
    "torch_xla.step",
    "torch.compile",
)
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
    "ignite",
    "fairseq",
)


def syncs(model: FileModel, call: CallSite) -> bool:
    """Whether a call ends the pending graph."""
    if call.name in _SYNCS:
        return True
    if call.name == OPTIMIZER_STEP:
        barrier = call.argument(1, "barrier")
        # A barrier that is decided elsewhere may be there.
        return call.has_star or (barrier is not None and model.literal(barrier) is not False)
    return False


def compiles(model: FileModel) -> bool:
    """Whether the file hands steps to something that ends the graph by itself."""
    return any(name is not None and name.startswith(_COMPILES) for name in _all_names(model))


def reduces_gradients(model: FileModel) -> bool:
    """Whether anything in the file reduces gradients over the cores, in whatever way."""
    if any(name is not None and name.startswith(_REDUCERS) for name in _all_names(model)):
        return True
    return any(name.startswith(_REDUCERS) for name in model.names.imported())


def steps_optimizer(model: FileModel, call: CallSite) -> bool:
    """``optimizer.step()``, however the optimizer is called."""
    return (
        call.method == "step"
        and call.name is None
        and call.receiver is not None
        and model.value(call.receiver).kind is Kind.OPTIMIZER
    )


def _all_names(model: FileModel) -> Iterator[str | None]:
    for call in model.calls():
        yield call.name
    for function in model.functions:
        for decorator in function.decorators:
            yield model.name(decorator.func if isinstance(decorator, cst.Call) else decorator)
    for cls in model.classes:
        for base in cls.bases:
            yield model.name(base)
