"""XLA428: what belongs to one process per core is used in SPMD mode."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Effect, Equal, builtin
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._environment import is_off, settings
from xladoctor.lint.rules._loaders import SAMPLER
from xladoctor.lint.rules._sources import the_source
from xladoctor.lint.rules._spmd import (
    LAUNCHES,
    asked_by,
    conditional,
    of_one_host,
    process_groups,
    starts_processes,
    turned_on,
)
from xladoctor.lint.rules._writes import written_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem
    from xladoctor.lint.model.problems import Place

_XM = "torch_xla.core.xla_model."
_XR = "torch_xla.runtime."
_WORLD = frozenset({f"{_XR}world_size", f"{_XM}xrt_world_size", f"{_XM}get_world_size"})
_NUMBER = frozenset({f"{_XR}global_ordinal", f"{_XM}get_ordinal"})
_MASTER = _NUMBER | {f"{_XM}is_master_ordinal", f"{_XR}local_ordinal", f"{_XM}get_local_ordinal"}


@rule("XLA428")
def spmd_process_api(model: FileModel) -> Iterator[Problem]:
    """Find launches, core numbers and process groups in files that call ``use_spmd()``."""
    call_of = turned_on(model)
    start = call_of.node if call_of is not None else _by_variable(model)
    if start is None:
        return
    related = [model.place(start, "SPMD is turned on here")]
    for call in model.calls(*LAUNCHES):
        if not conditional(model, call.node):
            what = (
                "raises NotImplementedError" if call.name == LAUNCHES[0] else "starts one process"
            )
            yield model.problem(
                call.node,
                f"in SPMD mode one process drives all devices: this {what}",
                suggestion="call the function: main()",
                related=related,
            )
    for call in model.calls(*_WORLD, *_NUMBER):
        role = _role(model, call)
        if role is not None and not conditional(model, call.node):
            value = "1" if call.name in _WORLD else "0"
            yield model.problem(
                call.node,
                f"in SPMD mode this is {value} whatever the number of devices: {role}",
                suggestion="xr.process_count() and xr.process_index() for data, "
                "xr.global_runtime_device_count() for the mesh",
                related=related,
            )
    for call in model.calls(*_exchanges()):
        if not conditional(model, call.node):
            yield model.problem(
                call.node,
                "in SPMD mode there is one core, so this exchanges nothing",
                suggestion="leave it out: a sum over the batch is one over all devices already; "
                "hosts exchange through torch.distributed and xr.process_index()",
                related=related,
            )
    yield from _masters(model, related)
    for call in process_groups(model):
        yield model.problem(
            call.node,
            "the process group of XLA does not work in SPMD mode: it raises an assertion",
            suggestion='leave it out, or init_process_group("gloo", init_method="xla://") for '
            "what the hosts exchange",
            related=related,
        )


def _by_variable(model: FileModel) -> cst.CSTNode | None:
    """``os.environ["XLA_USE_SPMD"] = "1"`` that no condition decides about: it still counts.

    In a program that starts a process for each core it is the mistake itself (XLA429).
    """
    if starts_processes(model):
        return None
    return next(
        (
            node
            for name, _, node in settings(model)
            if name == "XLA_USE_SPMD" and not is_off(model, node) and not conditional(model, node)
        ),
        None,
    )


def _masters(model: FileModel, related: list[Place]) -> Iterator[Problem]:
    """Files that the master alone is to write, where every host is the master."""
    told: set[cst.CSTNode] = set()
    for call in model.calls():
        if written_path(model, call) is None:
            continue
        for guard in model.guards(call.node):
            asked = asked_by(model, guard)
            master = asked & _MASTER and not of_one_host(asked)
            if guard.written in told or not master or not guard.when:
                continue
            told.add(guard.written)
            yield model.problem(
                guard.written,
                "in SPMD mode this is true in the process of every host: on several hosts each "
                "writes the file",
                suggestion="xr.process_index() == 0",
                related=[model.place(call.node, "what is written"), *related],
            )


@functools.cache
def _exchanges() -> tuple[str, ...]:
    """Collectives of torch_xla whose result is what they are called for."""
    return tuple(
        name.dotted
        for name in builtin().names.values()
        if name.dotted.startswith("torch_xla.")
        and Effect.COLLECTIVE in name.effects
        and Effect.OPTIMIZER_STEP not in name.effects
        and (name.pending or Effect.READ in name.effects)
        and name.equal is not Equal.WEIGHTS
    )


def _role(model: FileModel, call: CallSite) -> str | None:
    """What goes wrong with the number: in a sampler, or as a factor."""
    parent = model.parent(call.node)
    while isinstance(parent, cst.Arg | cst.Call):
        if isinstance(parent, cst.Call) and model.call(parent).name == SAMPLER:
            return "every process reads all of the data"
        parent = model.parent(parent)
    if isinstance(parent, cst.Assign) and any(
        the_source(model, value) is call.node
        for made in model.calls(SAMPLER)
        for value in (*made.positional[1:], *made.keywords.values())
    ):
        return "every process reads all of the data"
    if isinstance(parent, cst.BinaryOperation) and call.name in _WORLD:
        return "the scaling does nothing"
    return None
