"""XLA409: a ``DistributedSampler`` that does not know the cores, or stands beside ``shuffle``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_true
from xladoctor.lint.rules._loaders import DATA_LOADER, SAMPLER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem


@rule("XLA409")
def sampler_arguments(model: FileModel) -> Iterator[Problem]:
    """Find samplers and loaders whose arguments raise ``ValueError``."""
    if not model.is_xla or model.frameworks:
        return
    if not any(True for _ in model.methods("init_process_group")):
        for call in model.calls(SAMPLER):
            if call.has_star or len(call.positional) > 1:
                continue
            if {"num_replicas", "rank"} & set(call.keywords):
                continue
            yield model.problem(
                call.node,
                "without num_replicas and rank this sampler asks torch.distributed, which nobody "
                "initialized: it raises ValueError",
                suggestion="DistributedSampler(dataset, num_replicas=xr.world_size(), "
                "rank=xr.global_ordinal())",
                fix=_fix(model, call),
            )
    for call in model.calls(DATA_LOADER):
        shuffle = given_true(model, call, "shuffle")
        if shuffle is None or not {"sampler", "batch_sampler"} & set(call.keywords):
            continue
        given = call.keywords.get("sampler", call.keywords.get("batch_sampler"))
        if given is None or model.value(given).origin is None:
            continue  # may be None
        yield model.problem(
            shuffle,
            "sampler and shuffle=True exclude each other: DataLoader raises ValueError",
            suggestion="leave shuffle out of the loader, and shuffle in the sampler",
            fix=model.fix("Remove shuffle", model.remove_argument(call.node, shuffle), safe=True),
        )


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """Tell the sampler the cores, where they run."""
    cores = spell(model, call.node, "torch_xla.runtime.world_size")
    core = spell(model, call.node, "torch_xla.runtime.global_ordinal")
    if cores is None or core is None or model.on_every_core(call.node) is None:
        return None
    edit = model.add_argument(call.node, f"num_replicas={cores[0]}(), rank={core[0]}()")
    return model.fix("Tell it the cores", edit, [*dict.fromkeys([*cores[1], *core[1]])], safe=True)
