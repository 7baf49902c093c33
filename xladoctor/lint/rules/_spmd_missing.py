"""Shardings in a program that never turns SPMD on.

Measured on torch_xla 2.9 (also through the Trainer of transformers 5, whose ``xla_fsdp_v2`` turns
nothing on): ``mark_sharding`` raises "Please enable SPMD via `torch_xla.runtime.use_spmd()`", and
``input_sharding`` of a device loader does nothing: each of two cores got the whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.spmd import LIBRARIES
from xladoctor.lint.rules._spmd import FSDP, MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: The setting of transformers' ``fsdp_config`` that shards by SPMD.
_SETTING = "xla_fsdp_v2"
_ON = "use_spmd"
_DEVICE_LOADERS = tuple(
    f"torch_xla.distributed.parallel_loader.{name}" for name in ("MpDeviceLoader", "ParallelLoader")
)
_VARIABLE = "XLA_USE_SPMD"
_TRAINERS = ("TrainingArguments", "SFTConfig")


def never_turned_on(model: FileModel) -> Iterator[Problem]:
    """Find what shards in a script that can be read whole, where nothing turns SPMD on.

    Args:
        model: The file, which does not turn it on by a variable.

    Yields:
        One problem, at the first line that shards.
    """
    parts = (model, *model.linked)
    if any(_VARIABLE in part.text for part in parts):
        return  # be it in a comment that says how to start the program
    if any(part.once(_turns_on) for part in parts) or not _is_read(model):
        return
    spot, loader = next(_shardings(model), None), next(_loaders(model), None)
    if spot is None and loader is not None:
        yield model.problem(
            loader,
            "nothing in this program turns SPMD on, and without it input_sharding is ignored: "
            "every core gets the whole batch",
            suggestion="a DistributedSampler for the loader, and no mesh; or xr.use_spmd(), before "
            "the first use of a device",
        )
    if spot is not None:
        yield model.problem(
            spot,
            "nothing in this program turns SPMD on, and without it shardings raise an error (the "
            "variable XLA_USE_SPMD, set outside, still does, and is deprecated)",
            suggestion="xr.use_spmd(), before the first use of a device",
        )


def _turns_on(model: FileModel) -> bool:
    return any(call.last == _ON for call in model.calls())


def _shardings(model: FileModel) -> Iterator[cst.BaseExpression]:
    """What shards when the file is run: marks, FSDPv2, and its setting of a Trainer."""
    for call in model.calls(*MARK, *FSDP):
        if _runs(model, call):
            yield call.node
    if not any(call.last in _TRAINERS for call in model.calls()):
        return
    for node in model.nodes(cst.Dict):
        for item in node.elements:
            key = model.literal(item.key) if isinstance(item, cst.DictElement) else None
            if key == _SETTING and model.literal(item.value) is True:
                yield item.value


def _loaders(model: FileModel) -> Iterator[cst.BaseExpression]:
    """What device loaders are told to shard by."""
    for call in model.calls(*_DEVICE_LOADERS):
        given = call.keywords.get("input_sharding")
        if given is not None and model.literal(given) is NotImplemented and _runs(model, call):
            yield given


def _runs(model: FileModel, call: CallSite) -> bool:
    """Whether the file's own lines come to a call."""
    if call.function is None:
        return True
    if model.on_every_core(call.node) is not None:
        return True
    return any(call in model.reached(start.node) for start in model.calls_of(None))


def _is_read(model: FileModel) -> bool:
    """Whether nothing that the program calls is of a module that nobody has read."""
    roots = {
        call.name.partition(".")[0]
        for part in (model, *model.linked)
        for call in part.calls()
        if call.name is not None and call.target is None
    }
    return roots <= LIBRARIES
