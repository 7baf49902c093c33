"""XLA429: SPMD is turned on too late, by a variable, or without sharding the batches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, LoopKind
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.loops import HOT
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._batches import OF_DATA
from xladoctor.lint.rules._environment import is_off, settings
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._ranks import first_rank
from xladoctor.lint.rules._reads import costly_loop, loop_place
from xladoctor.lint.rules._sources import made_in, the_source
from xladoctor.lint.rules._spmd import (
    FSDP,
    MARK,
    MESH,
    SPEC,
    USE_SPMD,
    axes_of,
    conditional,
    is_mode,
    shape_of,
    starts_processes,
    turned_on,
)
from xladoctor.lint.rules._spmd_missing import never_turned_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

_LOADER = "torch_xla.distributed.parallel_loader.MpDeviceLoader"
_VARIABLE = "XLA_USE_SPMD"
_WEIGHTS = frozenset({"weight", "bias"})
_MOVES = frozenset({"to", "cuda"})
#: In the names of all that shards, torch_xla's or a project's own.
_SHARDS = re.compile(r"shard|partition|distribute|parallel(ize|_mode)|fsdp|auto", re.IGNORECASE)
#: In the names of what shards a batch.
_MARKS = re.compile(r"shard|partition", re.IGNORECASE)
#: The first release with ``torch_xla.runtime.use_spmd``.
_SINCE = (2, 1)


@rule("XLA429")
def spmd_setup(model: FileModel) -> Iterator[Problem]:
    """Find ``XLA_USE_SPMD``, ``use_spmd()`` after the first tensor, and batches left whole."""
    if not model.is_xla or model.target < _SINCE:
        return
    variable = False
    for name, spot, node in settings(model):
        variable |= name == _VARIABLE
        if name == _VARIABLE and not is_off(model, node):
            yield _by_variable(model, spot, node)
    if not variable:
        yield from never_turned_on(model)
    for call in model.calls(*USE_SPMD):
        tensor = _tensor_before(model, call)
        if tensor is not None:
            yield model.problem(
                call.node,
                "there are tensors on the device by now: each is copied to all devices as it is, "
                "with a warning",
                suggestion="call use_spmd() first",
                related=[model.place(tensor.node, "the first tensor")],
            )
    for call in model.calls(_LOADER):
        yield from _other_rank(model, call)
    start = turned_on(model)
    if start is not None and not _is_tensor_parallel(model, sure=True):
        yield from _unsharded(model, start)
        yield from _moved_whole(model, start)
        if not _is_tensor_parallel(model, sure=False):
            yield from _evaluated_whole(model, start)


def _by_variable(model: FileModel, spot: cst.CSTNode, node: cst.CSTNode) -> Problem:
    """SPMD that the variable turns on; torch_xla 2.9 warns only if ``use_spmd()`` is called too."""
    if starts_processes(model) and not is_mode(model, node):
        return model.problem(
            spot,
            "XLA_USE_SPMD turns SPMD on, where one process drives all devices, in a program that "
            "starts a process for each core",
            suggestion="leave it out; for SPMD start one process, call xr.use_spmd() and shard "
            "the batches",
        )
    return model.problem(
        spot,
        "XLA_USE_SPMD is deprecated: xr.use_spmd() turns SPMD on, and warns where the variable is "
        "set as well",
        suggestion="xr.use_spmd(), before the first use of a device",
        fix=_fix(model, node),
    )


def _tensor_before(model: FileModel, spmd: CallSite) -> CallSite | None:
    """A call in the same piece of code that has certainly put a tensor on the device."""
    for call in model.calls_of(spmd.function):
        if not in_order(model, call.node, spmd.node):
            continue
        moved = call.method in _MOVES or "device" in call.keywords
        if moved and not conditional(model, call.node):
            value = model.value(call.node)
            if (value.is_device_tensor or value.on_device) and value.certain:
                return call
    return None


def _other_rank(model: FileModel, call: CallSite) -> Iterator[Problem]:
    """One spec for all tensors of a batch, of another rank than they have."""
    given = call.keywords.get("input_sharding")
    made = None if given is None else made_in(model, given, SPEC)
    spec = None if made is None else made.argument(1, "partition_spec")
    spec = the_source(model, spec) if spec is not None else None
    if made is None or not isinstance(spec, cst.Tuple):
        return
    if any(isinstance(one, cst.StarredElement) for one in spec.elements):
        return
    rank = first_rank(model, call.argument(0, "loader"))
    entries = len(spec.elements)
    if rank is None or rank == entries:
        return
    yield model.problem(
        call.node,
        f"a spec of {entries} for batches of {rank} dimensions: torch_xla silently leaves them "
        "whole on every device",
        suggestion="one entry for each dimension (None for those that are not sharded); for "
        "tensors of several ranks a dict of specs, by the batch's keys",
        related=[model.place(spec, "the spec")],
    )


def _unsharded(model: FileModel, start: CallSite) -> Iterator[Problem]:
    """Device loaders without ``input_sharding`` whose batches nothing shards."""
    marks = list(_marks(model))
    for call in model.calls(_LOADER):
        if any(source in (None, call.node) for source in marks):
            continue
        if call.has_star or "input_sharding" in call.keywords or conditional(model, call.node):
            continue
        loops = [loop for loop in model.loops if loop.iterates.origin is call.node]
        if not any(loop.kind in HOT for loop in loops):
            continue
        yield model.problem(
            call.node,
            "without input_sharding every device gets the whole batch and computes the same",
            suggestion='input_sharding=xs.ShardingSpec(mesh, ("data", None))',
            related=[model.place(start.node, "SPMD is turned on here")],
        )


def _moved_whole(model: FileModel, start: CallSite) -> Iterator[Problem]:
    """Batches that a step loop moves itself, in a program that shards nothing, or weights alone.

    Where no such move is seen and nothing is sharded, the model's stands for it.
    """
    sharding = [
        (part, call) for part in (model, *model.linked) for call in part.calls() if _shards(call)
    ]
    weights = bool(sharding)
    if weights and not (
        _has_batch_axis(model) and all(_of_weights(part, call) for part, call in sharding)
    ):
        return
    loops = [loop for loop in model.loops if loop.kind is LoopKind.STEP]
    moves = [call for call in model.calls() if call.method in _MOVES and not _is_there(model, call)]
    made = [call for call in model.calls(*OF_DATA) if "device" in call.keywords and not weights]
    first: dict[Loop, CallSite] = {}
    for call in (*moves, *made):
        loop = None if weights else model.loop(call.node)
        loop = loop if loop in loops else model.step_loop(call.node)
        if loop in loops and loop is not None and model.value(call.node).is_device_tensor:
            first.setdefault(loop, call)
    wholes = [call for call in moves if model.value(call.node).kind is Kind.MODEL]
    for call in first.values() or (wholes[:1] if loops and not weights else ()):
        yield model.problem(
            call.node,
            "SPMD is on and no batch is sharded: every device gets all of it and computes the same"
            if weights
            else "SPMD is on and nothing is sharded: every device holds all of it and computes the "
            "same",
            suggestion='xs.mark_sharding(batch, mesh, ("data", None)), or '
            "MpDeviceLoader(..., input_sharding=...)",
            related=[model.place(start.node, "SPMD is turned on here")],
        )


def _evaluated_whole(model: FileModel, start: CallSite) -> Iterator[Problem]:
    """Batches that an evaluation loop moves itself and gives to a model, and nothing shards."""
    first: dict[Loop, CallSite] = {}
    for call in model.calls():
        moved = call.method in _MOVES and model.value(call.node).is_device_tensor
        loop = costly_loop(model, call.node) if moved and not _is_there(model, call) else None
        if loop is not None and loop.kind is LoopKind.EVAL:
            first.setdefault(loop, call)
    for loop, call in first.items():
        inside = model.reached(loop.node)
        if loop.iterates.kind is Kind.DEVICE_LOADER or any(_MARKS.search(x.last) for x in inside):
            continue
        yield model.problem(
            call.node,
            "SPMD is on and nothing shards the batches of this evaluation: every device gets all "
            "of each and computes the same",
            suggestion='xs.mark_sharding(batch, mesh, ("data", None)), or '
            "MpDeviceLoader(..., input_sharding=...)",
            related=[loop_place(model, loop), model.place(start.node, "SPMD is turned on here")],
        )


def _has_batch_axis(model: FileModel) -> bool:
    """Whether a mesh has an axis for batches, by its name, with more than one place."""
    from xladoctor.shardings import BATCH_AXES  # takes time to load, and few files ask for it

    for part in (model, *model.linked):
        for call in part.calls(*MESH):
            axes, shape = axes_of(part, call.node), shape_of(part, call)
            for axis, places in zip(axes or (), shape[1] if shape else (), strict=False):
                one = places is not None and not places.unknown and places.factor == 1
                if axis in BATCH_AXES and not one:
                    return True
    return False


def _is_tensor_parallel(model: FileModel, *, sure: bool) -> bool:
    """Whether weights are sharded over meshes, none of which has an axis for batches.

    Each device computes with its part of the weights, and needs all of each batch for that.

    Args:
        model: The file.
        sure: Whether an axis that may have one place alone counts as one for batches.
    """
    from xladoctor.shardings import BATCH_AXES  # takes time to load, and few files ask for it

    parts = (model, *model.linked)
    meshes = [(part, call) for part in parts for call in part.calls(*MESH)]
    if not meshes or _has_batch_axis(model) or not any(any(x.calls(*MARK)) for x in parts):
        return False
    for part, call in meshes:
        axes = axes_of(part, call.node)
        named = axes is None or not BATCH_AXES.isdisjoint(axes)
        if axes is None or (sure and named and shape_of(part, call) is None):
            return False
    return True


def _is_there(model: FileModel, call: CallSite) -> bool:
    """``index.to(x.device)`` of what the model has computed: nothing is uploaded."""
    return call.receiver is not None and model.value(call.receiver).is_device_tensor


def _of_weights(model: FileModel, call: CallSite) -> bool:
    """Whether a call that shards is known to shard weights alone, or nothing by itself."""
    if call.name in MARK:
        return _is_of_model(model, call)
    target = call.target
    if not isinstance(target, Function):
        return False
    inside = [one for one in model.reached(target.node.body) if _shards(one)]
    return bool(inside) and all(one.name in MARK and _is_of_model(model, one) for one in inside)


def _shards(call: CallSite) -> bool:
    """Whether a call may shard something, by its name or an argument's."""
    return any(_SHARDS.search(word) for word in (call.last, *call.keywords))


def _marks(model: FileModel) -> Iterator[cst.Call | None]:
    """For each ``mark_sharding`` of a batch, the loader of its loop; None: of any, for all we know.

    Marks in step loops and in functions, which a step may call.
    """
    for part in (model, *model.linked):
        for call in part.calls():
            name = (call.name or call.method or "").rpartition(".")[2]
            if name != "mark_sharding" or _is_of_model(part, call):
                continue
            loop = part.step_loop(call.node)
            origin = None if loop is None else loop.iterates.origin
            if isinstance(origin, cst.Call) and loop is part.loop(call.node):
                yield origin
            elif loop is not None or call.function is not None:
                yield None


def _is_of_model(model: FileModel, call: CallSite) -> bool:
    """Whether a mark shards weights, or what a layer gives: no batch is sharded by it."""
    given = call.argument(0, "t")
    if isinstance(given, cst.Attribute) and given.attr.value in _WEIGHTS:
        return True
    handed = [one.keywords.get("shard_output") for one in model.calls(*FSDP)]
    name = None if call.function is None else call.function.name
    return any(is_name(one, name) for one in handed)


def _fix(model: FileModel, node: cst.CSTNode) -> Fix | None:
    """``xr.use_spmd()`` in the place of the assignment, where the file has ``xr``."""
    if not isinstance(node, cst.Assign) or model.literal(node.value) != "1":
        return None
    spelled = model.spelled("torch_xla.runtime.use_spmd", node)
    if spelled is None:
        return None
    return model.fix("Call use_spmd()", model.replace(node, f"{spelled}()"), safe=True)
