"""What an SPMD program divides among its devices, and what it does not.

XLA428 collectives between cores that there are not, XLA429 a batch that every device computes
whole, XLA440 parameters or optimizer state that are copied to every device while others are
divided, XLA441 a graph that is compiled again because its inputs have come back divided otherwise,
XLA442 sizes that the devices do not divide, XLA444 a mesh that torch_xla refuses, XLA450 tensors
that are gathered whole between two shardings.
"""

from __future__ import annotations

import collections
import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.amounts import size
from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding, noted, plural
from xladoctor.readings.hlo import Graph
from xladoctor.readings.places import location
from xladoctor.readings.products import products
from xladoctor.readings.sharding import exchanges
from xladoctor.shardings import BATCH_AXES, DTYPES, DeviceCollective, ShardedTensor, Sharding, shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.diagnosis.pasted import Pasted
    from xladoctor.findings import Finding, Location
    from xladoctor.readings.sharding import ShardingRow, TensorRow
    from xladoctor.readings.tables import CompilationRow

#: What XLA adds for a sharding; two graphs that differ in nothing else are the same computation.
_MARKS = frozenset({"xla::custom_sharding", "xla::Sharding"})
#: Inputs count: state that an optimizer has made in its first step is more of them in the next one.
#: What only moves data comes and goes with the shardings (an annotated result is not a transposed
#: one), and is no other computation.
_NO_WORK = frozenset({
    "custom-call", "tuple", "get-tuple-element", "transpose", "reshape", "copy",
    "bitcast", "broadcast", "constant",
})  # fmt: skip

_SHARD_INPUT = (
    'shard it where it is sent: MpDeviceLoader(..., input_sharding=xs.ShardingSpec(mesh, ("data", '
    "None))), or xs.mark_sharding(batch, mesh, spec) on it"
)
_ENTRIES = (
    'one entry for each dimension: xs.ShardingSpec(mesh, ("data", None, None, None)), and for '
    "tensors of several ranks a dict of specs, by the batch's keys"
)
_FILL_MESH = "make it of xr.global_runtime_device_count() devices, or run it on as many"
_SHARD_LAST = (
    "mark it after the last assignment (load_state_dict(assign=True), nn.Parameter(...) and tied "
    "weights replace it), or let the wrapping policy cover it"
)
_SHARD_FIRST = "mark the parameters first, then make the optimizer (and load its state) from them"
_MARK_ALL = (
    "mark every parameter before the first step (xs.mark_sharding, with (None, ...) for those that "
    "are to stay whole), so that results have the sharding that inputs had"
)
_FIT = (
    "mark the value in between with a sharding that keeps an axis of each, or give both places the "
    "same one (xs.mark_sharding)"
)
_FILL_UP = "choose a size that the devices divide (pad a vocabulary), or another axis of the mesh"
_ONE_PROGRAM = (
    "leave it out: in SPMD mode a sum over the batch is already one over all devices; what hosts "
    "exchange goes through torch.distributed with xr.process_index()"
)


def sharding_of(run: RunFacts) -> Sharding | None:
    """What lies where in a run, as it has settled; None if the program is not SPMD."""
    rows = run.runs[0].shardings
    if not rows:
        return None
    last = max(rows, key=lambda row: row.step)
    first = min(rows, key=lambda row: row.step)
    base = _settled(run)
    declared = {(one.kind, one.name): one.spec for one in first.tensors if first is not last}
    return Sharding(
        last.devices,
        last.step,
        last.meshes,
        (
            *(_tensor(run, last, one, declared.get((one.kind, one.name))) for one in last.tensors),
            *(() if base is None else _products(run, last.devices, base)),
        ),
        last.others,
        None if base is None else _collectives(run, last, base),
    )


def _products(run: RunFacts, devices: int, base: Path) -> Iterator[ShardedTensor]:
    """The products of the graph as rows of the table: what is inside a graph has no sharding."""
    for one in products(base):
        place = run.place(one.frames)
        copies, rest = divmod(devices, math.prod(one.tiles))
        if place is None or rest:
            continue
        cut = ",".join(map(str, (*one.tiles, *([copies] if copies > 1 else []))))
        name = f"{one.operation.removeprefix('aten::')}{f' x {one.count}' if one.count > 1 else ''}"
        yield ShardedTensor(
            "product", name, one.shape, DTYPES.get(one.dtype, one.dtype), one.bytes,
            f"{{devices=[{cut}]}}", devices, place,
        )  # fmt: skip


def _tensor(run: RunFacts, row: ShardingRow, one: TensorRow, declared: str | None) -> ShardedTensor:
    place = run.place(one.frames)
    if place is None and one.kind == "input":
        place = run.place(row.loop) or run.place(row.made)
    return ShardedTensor(
        one.kind, one.name, one.shape, one.dtype, one.bytes, one.spec, row.devices, place,
        None if declared == one.spec else declared,
    )  # fmt: skip


def _settled(run: RunFacts) -> Path | None:
    """The graph that most steps run: the last that was new where most launches are."""
    launches: collections.Counter[object] = collections.Counter()
    for launch in run.runs[0].launches:
        if launch.trigger in ("step", "loader", "sync"):
            launches[launch.frames, launch.trigger] += launch.count
    if not launches:
        return None
    point = launches.most_common(1)[0][0]
    graphs = [one for one in _graphs(run) if (one.frames, one.trigger) == point]
    settled = [one for one in graphs if (one.executions or 0) < limits.WARMUP_EXECUTIONS]
    return _base(run, settled[-1]) if settled else None


def _collectives(
    run: RunFacts, row: ShardingRow, base: Path
) -> tuple[DeviceCollective, ...] | None:
    found = exchanges(base)
    if found is None:
        return None
    groups: dict[object, list[DeviceCollective]] = {}
    for one in found:
        pairs = one.kind == "collective-permute"
        along = next(
            (
                axes
                for mesh in row.meshes
                if (axes := (mesh.between if pairs else mesh.along)(one.groups))
            ),
            None,
        )
        place = run.place(tuple(one.frames))
        whole = one.cut_again and max(map(len, one.groups), default=0) == row.devices
        groups.setdefault((one.kind, along, place, one.operation, whole), []).append(
            DeviceCollective(
                one.kind, 1, one.bytes, along, one.operation, place, one.looped, one.shape, whole
            )
        )
    merged = (
        DeviceCollective(
            ones[0].kind, len(ones), sum(one.bytes for one in ones), ones[0].axes,
            ones[0].operation, ones[0].location, any(one.looped for one in ones),
            max(ones, key=lambda one: one.bytes).shape, ones[0].cut_again,
        )
        for ones in groups.values()
    )  # fmt: skip
    return tuple(sorted(merged, key=lambda one: -one.bytes))


def _graphs(run: RunFacts) -> list[CompilationRow]:
    return [row for row in run.runs[0].compilations if row.hlo is not None and not row.modelled]


def _base(run: RunFacts, row: CompilationRow) -> Path:
    return Path(run.runs[0].manifest.path) / row.process / (row.hlo or "")


# -- findings --------------------------------------------------------------------------------------
def find(case: Case) -> Iterator[Finding]:
    """Of SPMD programs alone."""
    if case.pasted is not None:
        yield from _complaints(case.pasted)
    if case.run is None:
        return
    run = case.run
    for call in run.runs[0].spmd_calls:
        yield finding(
            "XLA428",
            f"xm.{call.what} exchanges nothing: in SPMD mode the program is one core, whatever the "
            "number of devices",
            _ONE_PROGRAM,
            at=run.place(call.frames),
        )
    yield from _refused(run)
    sharding = run.sharding
    if sharding is None or sharding.devices < 2:
        return
    last = max(run.runs[0].shardings, key=lambda row: row.step)
    yield from _whole_inputs(sharding, last.ranks)
    sent = {one.name: place for one in last.tensors if (place := run.place(one.sent)) is not None}
    yield from _copied(sharding, sent)
    yield from _uneven(sharding)
    yield from _gathered_to_be_cut(sharding)
    yield from _compiled_again(run, sharding, sent)


def _refused(run: RunFacts) -> Iterator[Finding]:
    """Meshes for other machines than this one."""
    for row in run.runs[0].meshes_refused:
        wanted = row.places if row.ids in (None, row.devices) else row.ids
        if wanted in (None, row.devices) or row.devices < 1:
            message = f"torch_xla refuses this mesh: {row.error}"
        else:
            message = (
                f"a mesh of {plural(wanted or 0, 'device')}, and this program has {row.devices}: "
                "torch_xla refuses it"
            )
        yield finding(
            "XLA444",
            message,
            _FILL_MESH
            + (f" (--simulate-cores {wanted})" if run.runs[0].manifest.simulated_cores else ""),
            at=run.place(row.frames),
        )


def _whole_inputs(sharding: Sharding, ranks: tuple[int, ...]) -> Iterator[Finding]:
    inputs = [one for one in sharding.tensors if one.kind == "input" and one.shape]
    if not inputs:
        return
    largest = max(one.bytes for one in inputs)
    large = [one for one in inputs if one.bytes >= limits.REPLICATED_SHARE * largest]
    whole = [one for one in large if one.replicated]
    if not whole or len(whole) < len(large) or not _batch_is_divided(sharding):
        return
    names = ", ".join(sorted({shape(one) for one in whole}))
    # A spec is for tensors with as many dimensions as it has entries (ShardingSpec.can_apply).
    unfit = bool(ranks) and not {len(one.shape) for one in whole} & {*ranks}
    entries = " or ".join(map(str, sorted({*ranks})))
    why = (
        f": its ShardingSpec has {entries} entries, and applies to no tensor with another number "
        "of dimensions"
        if unfit
        else ""
    )
    # Layers that shard their outputs (FSDPv2) let XLA divide the work of a whole batch, too.
    divided = _work_is_divided(sharding)
    does = "is sent the whole batch" if divided else "gets the whole batch"
    then = ", to compute its share of it" if divided else " and computes all of it"
    yield finding(
        "XLA429",
        f"each of the {sharding.devices} devices {does} ({names}){then}{why}",
        _ENTRIES if unfit else _SHARD_INPUT,
        at=[one.location for one in whole],
    )


def _work_is_divided(sharding: Sharding) -> bool:
    """Whether most of what the forward pass makes is divided among all devices."""
    made = [one for one in sharding.tensors if one.kind == "product"]
    total = sum(one.bytes for one in made)
    parts = sum(one.bytes for one in made if one.tiling is not None and one.tiling.copies == 1)
    return total > 0 and 2 * parts > total


def _batch_is_divided(sharding: Sharding) -> bool:
    """Whether a batch that stays whole is a fault.

    It is none where the model alone is divided (tensor parallelism): along an axis whose name says
    that it is for the batch it is one, and where nothing at all is divided.
    """
    tensors = [one for one in sharding.tensors if one.kind == "parameter"]
    names = {
        axis
        for mesh in sharding.meshes
        for axis, count in zip(mesh.axes, mesh.shape, strict=True)
        if count > 1
    }
    return bool(names & BATCH_AXES) or (bool(tensors) and all(one.replicated for one in tensors))


def _copied(sharding: Sharding, sent: dict[str, Location]) -> Iterator[Finding]:
    """Parameters and state that every device holds whole while others are divided."""
    kept = [one for one in sharding.tensors if one.kind in ("parameter", "state")]
    marked = _marked(sharding)
    divided = {one.name for one in kept if not one.replicated}
    if not divided:
        return
    total = sum(one.device_bytes for one in kept)
    for kind, advice in (("parameter", _SHARD_LAST), ("state", _SHARD_FIRST)):
        copied = [
            one
            for one in kept
            if one.kind == kind
            and one.replicated
            and one.bytes >= limits.REPLICATED_SHARE * total
            # Of a parameter that is whole itself the state is too.
            and (kind == "parameter" or one.name.partition(":")[0] in divided)
        ]
        if not copied:
            continue
        held = sum(one.bytes for one in copied)
        named = ", ".join(f"{one.name} {shape(one)}" for one in copied[: limits.NAMED_TENSORS])
        more = len(copied) - limits.NAMED_TENSORS
        what = "parameter" if kind == "parameter" else "tensor of optimizer state"
        plurals = "parameters" if kind == "parameter" else "tensors of optimizer state"
        yield finding(
            "XLA440",
            f"every device holds {plural(len(copied), what, plurals)} whole ({named}"
            f"{f' and {more} more' if more > 0 else ''}): {size(held)}, {held / total:.0%} of what "
            "it keeps for parameters and optimizer state, although others are sharded",
            advice,
            at=[place for one in copied if (place := one.location or sent.get(one.name))][:1]
            or [noted(place, "others are sharded here") for place in marked[-1:]],
            count=len(copied),
        )


def _marked(sharding: Sharding) -> list[Location]:
    """The lines that mark parameters, in the order of the lines."""
    places = {
        one.location
        for one in sharding.tensors
        if one.kind == "parameter" and one.location is not None
    }
    return sorted(places, key=lambda place: (place.filename, place.row))


def _uneven(sharding: Sharding) -> Iterator[Finding]:
    for one in sharding.tensors:
        cut = one.tiling
        if not one.uneven or cut is None:
            continue
        real = one.bytes * cut.copies / sharding.devices
        if one.device_bytes < real * (1 + limits.UNEVEN_SHARE):
            continue
        at, tiles = one.uneven[0]
        yield finding(
            "XLA442",
            f"{tiles} devices share the {one.shape[at]} rows of dimension {at} of "
            f"{one.name or 'an input'} {shape(one)}: each holds {-(-one.shape[at] // tiles)}, so "
            f"{one.device_bytes / real - 1:.0%} of memory and work is padding",
            _FILL_UP,
            at=one.location,
        )


def _gathered_to_be_cut(sharding: Sharding) -> Iterator[Finding]:
    """Tensors that are gathered whole on every device only to be divided otherwise."""
    exchanged = sum(one.bytes for one in sharding.collectives or ())
    # The backward pass goes the same way back, and has no line of its own.
    groups: dict[str, list[DeviceCollective]] = {}
    for one in sharding.collectives or ():
        if one.cut_again and one.bytes >= limits.REPLICATED_SHARE * exchanged:
            groups.setdefault(one.shape, []).append(one)
    for shape_of, ones in groups.items():
        operations = sorted({one.operation for one in ones if one.operation})
        what = f" of {' and '.join(operations)}" if operations else ""
        yield finding(
            "XLA450",
            f"{shape_of}{what} is gathered whole on each of the {sharding.devices} devices and cut "
            f"up again at once, {size(sum(one.bytes for one in ones))} in each step: XLA finds no "
            "way between the two shardings that it is given",
            _FIT,
            at=[one.location for one in ones if one.location is not None],
            count=sum(one.count for one in ones),
        )


def _complaints(text: Pasted) -> Iterator[Finding]:
    """What XLA says of the same in a log ("Involuntary full rematerialization")."""
    for told, count in text.regathered:
        known = told.file is not None and told.row is not None
        yield finding(
            "XLA450",
            f"the {told.shape} of {told.operation} on each device is gathered whole on all of them "
            f"and cut up again: XLA finds no way from {told.had} to {told.wanted}",
            _FIT,
            at=location(((told.file or "", told.row or 0, ""),)) if known else None,
            count=count,
            by="report",
        )


def _compiled_again(
    run: RunFacts, sharding: Sharding, sent: dict[str, Location]
) -> Iterator[Finding]:
    """Graphs that compute what the one before at their line did, with other shardings."""
    work = functools.cache(_work)  # a graph is compared with the one before it and the next
    before: dict[object, CompilationRow] = {}
    for row in _graphs(run):
        point = (row.frames, row.trigger)
        earlier, before[point] = before.get(point), row
        if earlier is None or earlier.graph == row.graph:
            continue
        known = work(_base(run, earlier))
        if not known or known != work(_base(run, row)):
            continue
        changed = [
            one for one in sharding.tensors if one.kind != "input" and one.declared is not None
        ]
        names = ", ".join(one.name for one in changed[: limits.NAMED_TENSORS])
        launch = run.place(row.frames)
        yield finding(
            "XLA441",
            f"step {row.step} compiles the same computation again because its inputs have come "
            "back with other shardings than they had"
            + (f": {names}{' and others' if len(changed) > limits.NAMED_TENSORS else ''}"
               if names else ""),
            _MARK_ALL,
            at=_remade(sharding, changed, sent) or _marked(sharding)[-1:] or launch,
            related=[noted(launch, "the step that compiles again")] if launch else [],
            count=1,
            seconds=row.seconds,
        )  # fmt: skip


def _remade(
    sharding: Sharding, changed: list[ShardedTensor], sent: dict[str, Location]
) -> list[Location]:
    """The lines that put parameters without a sharding in the place of others, after a mark."""
    places = [sent[one.name] for one in changed if one.location is None and one.name in sent]
    first = next(iter(_marked(sharding)), None)
    later = [
        one
        for one in places
        if first is not None and one.filename == first.filename and one.row > first.row
    ]
    return sorted(later, key=lambda place: place.row)[:1]


def _work(base: Path) -> collections.Counter[tuple[str, str]]:
    return collections.Counter(
        (one.opcode, one.shape)
        for one in Graph(base).instructions
        if one.opcode not in _NO_WORK and one.operation not in _MARKS
    )
