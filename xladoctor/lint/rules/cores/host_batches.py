"""XLA447: SPMD on several hosts: batches of each host's own that are taken for the whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._sources import made_in, the_source
from xladoctor.lint.rules._spmd import SPEC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_HOSTS = ("torch_xla.runtime.process_count", "torch_xla.runtime.process_index")
_SAMPLERS = (
    "torch.utils.data.distributed.DistributedSampler",
    "torch.utils.data.DistributedSampler",
)


@rule("XLA447")
def host_batches(model: FileModel) -> Iterator[Problem]:
    """Find specs for inputs without ``minibatch=True`` beside samplers that divide by hosts."""
    if not model.spmd:
        return
    for call in model.calls():
        given = call.keywords.get("input_sharding")
        sampler = None if given is None else _by_hosts(model, call.argument(0, "loader"))
        if sampler is None:
            continue
        for spec in _specs(model, given):
            yield model.problem(
                spec.node,
                "without minibatch=True the batch of the first host is taken for the global "
                "batch: what the other hosts load is discarded",
                suggestion="minibatch=True, with batch_size divided by xr.process_count()",
                related=[model.place(sampler.node, "each host has its own samples")],
            )


def _by_hosts(model: FileModel, loader: cst.BaseExpression | None) -> CallSite | None:
    """The sampler behind a device loader, if its replicas are the hosts."""
    made = None if loader is None else made_in(model, loader, (DATA_LOADER,))
    given = made.keywords.get("sampler") if made is not None else None
    sampler = None if given is None else made_in(model, given, _SAMPLERS)
    if sampler is None:
        return None
    for name, at in (("num_replicas", 1), ("rank", 2)):
        value = sampler.argument(at, name)
        asked = model.reached(the_source(model, value)) if value is not None else ()
        if any(one.name in _HOSTS for one in asked):
            return sampler
    return None


def _specs(model: FileModel, given: cst.BaseExpression | None) -> Iterator[CallSite]:
    """The specs in what is given as ``input_sharding``, as far as they stand in the file."""
    if given is None:
        return
    if isinstance(given, cst.Dict | cst.List | cst.Tuple):
        for element in given.elements:
            yield from _specs(model, element.value)
        return
    made = made_in(model, given, SPEC)
    if made is None or made.has_star:
        return
    several = made.argument(2, "minibatch")
    if several is None or model.literal(several) is False:
        yield made
