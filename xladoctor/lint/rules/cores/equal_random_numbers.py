"""XLA434: noise and time steps that every core draws alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, every_core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Functions of torch that draw on ``device=``, or on the device of their first tensor.
_ON_DEVICE = frozenset({"torch.rand", "torch.randn", "torch.randint"})
_LIKE = frozenset({"torch.rand_like", "torch.randn_like", "torch.randint_like", "torch.bernoulli"})
_SEEDS = (
    "torch_xla.manual_seed",
    "torch_xla.core.xla_model.set_rng_state",
)
#: Helpers that seed the device too, among other things.
_SEEDS_ALL = re.compile(r"(^|\.)(seed_everything|set_seed|manual_seed|random_seed)$")


@rule("XLA434")
def equal_random_numbers(model: FileModel) -> Iterator[Problem]:
    """Find draws on the device in the step loop, where no core has a seed of its own."""
    if model.spmd or not model.multi_core or _own_seeds(model):
        return
    for call in model.calls(*_ON_DEVICE, *_LIKE):
        if not _on_device(model, call) or "generator" in call.keywords:
            continue
        entry = every_core(model, call.node)
        if entry is None or model.step_loop(call.node) is None:
            continue
        short = (call.name or "").rpartition(".")[2]
        yield model.problem(
            call.node,
            f"{short} gives every core the same numbers: the device generators of all cores begin "
            "with the same seed",
            suggestion="torch_xla.manual_seed(seed + xr.global_ordinal()), once the weights are "
            "equal",
            related=entry_places(model, entry),
        )


def _own_seeds(model: FileModel) -> bool:
    """Whether the device is seeded by something that may differ from core to core.

    What a function that cannot be read does with its seed is not known, so it counts.
    """
    for call in model.calls():
        given = [argument.value for argument in call.node.args]
        local = any(model.value(one).local for one in given)
        if local and (call.name in _SEEDS or _SEEDS_ALL.search(call.name or call.method or "")):
            return True
    return False


def _on_device(model: FileModel, call: CallSite) -> bool:
    from xladoctor.lint.model.values import Kind

    if call.name in _LIKE and "device" not in call.keywords:
        tensor = call.argument(0, "input")
        return tensor is not None and model.value(tensor).is_device_tensor
    device = call.keywords.get("device")
    return device is not None and model.value(device).kind is Kind.DEVICE
