"""XLA434: noise and time steps that every core draws alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, every_core, tells_core
from xladoctor.lint.rules._device_draws import draws_anew
from xladoctor.lint.rules._equal import same_seed
from xladoctor.lint.rules._equal_noise import equal_noise
from xladoctor.lint.rules._model_parallel import divided
from xladoctor.lint.rules._picked_samples import samples_by_chance
from xladoctor.lint.rules._reads import always_given, not_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Functions that choose samples on the host, and kinds of value that they are chosen from.
_PICKS = ("torch.randint", "torch.randperm")
_HELD = frozenset({Kind.UNKNOWN, Kind.ARRAY, Kind.CPU_TENSOR, Kind.CONTAINER})
_SEEDS = (
    "torch_xla.manual_seed",
    "torch_xla.core.xla_model.set_rng_state",
)
#: Helpers that seed the device too, among other things.
_SEEDS_ALL = re.compile(r"(^|\.)(seed_everything|set_seed|manual_seed|random_seed)$")


@rule("XLA434")
def equal_random_numbers(model: FileModel) -> Iterator[Problem]:
    """Find draws on the device in the step loop, where no core has a seed of its own."""
    if model.spmd or divided(model) is not None:
        return
    yield from samples_by_chance(model)
    yield from _equal_samples(model)
    yield from equal_noise(model)
    if _own_seeds(model):
        return
    for call in model.calls():
        if not draws_anew(model, call) or "generator" in call.keywords:
            continue
        entry = every_core(model, call.node, some_way=True)
        loop = model.hot_loop(call.node) if entry is not None else None
        if entry is None or loop is None or loop.kind is LoopKind.EVAL:
            continue
        if not_here(model, call.node) or _instead_of_given(model, call):
            continue
        short = call.last
        yield model.problem(
            call.node,
            f"{short} gives every core the same numbers: the device generators of all cores start "
            "from the same seed",
            suggestion="torch_xla.manual_seed(seed + xr.global_ordinal()), once the weights are "
            "equal",
            related=entry_places(model, entry),
        )


def _instead_of_given(model: FileModel, call: CallSite) -> bool:
    """``noise = default(noise, lambda: torch.randn_like(x))`` where all callers give the noise."""
    function = call.function
    if function is None or not isinstance(function.node, cst.Lambda):
        return False
    argument = model.parent(function.node)
    around = model.parent(argument) if isinstance(argument, cst.Arg) else None
    first = model.call(around).argument(0) if isinstance(around, cst.Call) else None
    return isinstance(first, cst.Name) and always_given(model, first)


def _equal_samples(model: FileModel) -> Iterator[Problem]:
    """``ix = torch.randint(len(data) - 128, (16,))`` after one seed for all cores."""
    for call in model.calls(*_PICKS):
        if "generator" in call.keywords or model.value(call.node).is_device_tensor:
            continue
        entry = every_core(model, call.node)
        if entry is None or model.step_loop(call.node) is None or not _picks(model, call):
            continue
        seed = same_seed(model, call)
        if seed is None:
            continue
        yield model.problem(
            call.node,
            "every core draws the same samples, because all have the same seed: the cores all "
            "compute the same batch",
            suggestion="draw with a generator of each core's own: "
            "torch.Generator().manual_seed(seed + xr.global_ordinal())",
            related=[model.place(seed.call.node, "the same seed"), *entry_places(model, entry)],
        )


def _picks(model: FileModel, call: CallSite) -> bool:
    """Whether what is drawn chooses samples of data that all cores hold whole."""
    assign = model.parent(call.node)
    target = assign.targets[0].target if isinstance(assign, cst.Assign) else None
    function = call.function
    if not isinstance(target, cst.Name) or function is None:
        return False
    body = [*walk(function.node)]
    if any(tells_core(model, node) and not _is_device(model, node) for node in body):
        return False
    names = {target.value}
    for node in body:
        if isinstance(node, cst.For | cst.CompFor) and _mentions(node.iter, names):
            names |= set(names_bound(node.target))
    return any(
        isinstance(node, cst.Subscript)
        and any(_mentions(element, names) for element in node.slice)
        and model.value(node.value).kind in _HELD
        and not model.value(node.value).local
        for node in body
    )


def _mentions(node: cst.CSTNode, names: set[str]) -> bool:
    return any(isinstance(part, cst.Name) and part.value in names for part in walk(node))


def _is_device(model: FileModel, node: cst.CSTNode) -> bool:
    """The device differs from core to core by its number alone."""
    if isinstance(node, cst.Call):
        return model.value(node).kind is Kind.DEVICE
    return isinstance(node, cst.BaseExpression) and model.value(node).kind is Kind.DEVICE


def _own_seeds(model: FileModel) -> bool:
    """Whether the device is seeded by something that may differ from core to core.

    What a function that cannot be read does with its seed is not known, so it counts; torch's own
    (``torch.manual_seed``) seed no XLA device (XLA313).
    """
    for call in model.calls():
        if (call.name or "").startswith("torch."):
            continue
        given = [argument.value for argument in call.node.args]
        local = any(model.value(one).local for one in given)
        if local and (call.name in _SEEDS or _SEEDS_ALL.search(call.name or call.method or "")):
            return True
    return False
