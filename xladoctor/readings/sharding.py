"""The shardings of an SPMD program, and the collectives of its graphs as XLA has divided them.

Facts used (XLA of torch_xla 2.9.0, seen in its dumps): collectives are in the module after
optimization only; ``replica_groups`` are lists ("{{0,1},{2,3}}") or a grid ("[2,4]<=[8]"),
``collective-permute`` has ``source_target_pairs`` instead. The stacks of operations survive.
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
from typing import TYPE_CHECKING, Any

from xladoctor import files
from xladoctor.readings.fields import integer, integers, text
from xladoctor.readings.hlo import COMMENT, item_bytes, operation_of, stacks_of
from xladoctor.readings.resharding import gathered_to_be_cut
from xladoctor.readings.wire import messages
from xladoctor.shardings import MOST_DEVICES, Mesh, transposed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from xladoctor.readings.tables import Frame

_KINDS = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute|collective-broadcast"
_COLLECTIVE = re.compile(rf"%([\w.\-]+) = (.+?) ({_KINDS})(?:-start)?\(([^)]*)\)(.*)")
_SHAPE = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")
_LISTED = re.compile(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}")
_GRID = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")

#: Meshes and tensors of a row that are read, whatever it says.
_MOST = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor, as :class:`xladoctor.shardings.ShardedTensor`, where it was marked and sent."""

    kind: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    spec: str
    frames: tuple[Frame, ...]
    sent: tuple[Frame, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ShardingRow:
    """What lay where after a step.

    Attributes:
        process: Folder of the process.
        core: Of the process.
        step: Optimizer step after whose graph it was written.
        devices: Of the program.
        meshes: Those that were alive.
        tensors: The largest first.
        others: Bytes of smaller ones.
        made, loop: Where the loader whose batch it was is made, and iterated; empty if none.
        ranks: The entries of each spec that the device loader was given.
    """

    process: str
    core: int
    step: int
    devices: int
    meshes: tuple[Mesh, ...]
    tensors: tuple[TensorRow, ...]
    others: int
    made: tuple[Frame, ...] = ()
    loop: tuple[Frame, ...] = ()
    ranks: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class MeshRow:
    """A mesh that torch_xla refused.

    Attributes:
        process: Folder of the process.
        devices: Of the program.
        ids: Devices that the mesh was given; None if not known.
        places: The product of its shape; None if not known.
        error: What torch_xla said.
        frames: The line that made it.
    """

    process: str
    devices: int
    ids: int | None
    places: int | None
    error: str
    frames: tuple[Frame, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class CallRow:
    """A collective between cores that a program calls although it has one core only (SPMD)."""

    process: str
    core: int
    what: str
    frames: tuple[Frame, ...]


def sharding_row(
    process: str, event: dict[str, Any], place: Callable[[Any], tuple[Frame, ...]]
) -> ShardingRow:
    """The row of one event.

    Args:
        process: Folder of the process.
        event: As the recorder wrote it.
        place: Gives the frames of a site.

    Raises:
        ValueError: It names more devices than there can be.
    """
    devices = integer(event.get("devices")) or 1
    if not 0 < devices <= MOST_DEVICES:
        raise ValueError(f"{devices} is no number of devices")
    fed = event.get("fed")
    fed = fed if isinstance(fed, dict) else {}
    return ShardingRow(
        process,
        integer(event.get("core")) or 0,
        integer(event.get("step")) or 0,
        devices,
        tuple(
            Mesh(_texts(mesh.get("axes")), integers(mesh.get("shape")), integers(mesh["devices"]))
            for mesh in event["meshes"][:_MOST]
            if math.prod(integers(mesh.get("shape"))) == len(mesh["devices"]) <= MOST_DEVICES
            and len(mesh.get("axes")) == len(mesh.get("shape"))
        ),
        tuple(
            TensorRow(
                text(one.get("kind")) or "",
                text(one.get("name")) or "",
                integers(one.get("shape")),
                text(one.get("dtype")) or "",
                integer(one.get("bytes")) or 0,
                text(one.get("spec")) or "",
                place(one.get("site")),
                place(one.get("sent")),
            )
            for one in event["tensors"][:_MOST]
        ),
        integer(event.get("others")) or 0,
        place(fed.get("made")),
        place(fed.get("loop")),
        integers(event.get("ranks")),
    )


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in values) if isinstance(values, list) else ()


# -- the graph as XLA has divided it ---------------------------------------------------------------
@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """One collective of a divided graph.

    Attributes:
        kind: XLA's name ("all-gather").
        bytes: Of one device's result; of a reduce-scatter, of its input.
        groups: The devices that exchange with each other.
        operation: torch's name of the operation that it serves, "" if not known.
        frames: Where that was traced, innermost first; empty for the backward pass.
        looped: Whether it is in the body of a loop.
        shape: Of the result ("f32[16,32]").
        cut_again: Whether only slices of the result are used: it is gathered to be divided anew.
    """

    kind: str
    bytes: int
    groups: frozenset[frozenset[int]]
    operation: str
    frames: tuple[Frame, ...]
    looped: bool
    shape: str = ""
    cut_again: bool = False


def exchanges(base: Path) -> list[Exchange] | None:
    """The collectives of a graph of a run directory, in the order of the graph.

    Args:
        base: Path without ending ("run/p1-2/graphs/0003").

    Returns:
        None if the divided graph was not kept.
    """
    try:
        module = files.unpacked(base.with_name(base.name + ".part.txt.z"))
    except OSError:
        return None
    if not module:
        return None
    try:
        packed = messages(files.unpacked(base.with_name(base.name + ".part.pb.z")), 1)
        stacks = stacks_of(packed[0]) if packed else {}
    except (OSError, IndexError, ValueError, KeyError):
        stacks = {}
    return list(_exchanges(module.decode("utf-8", "replace"), stacks))


def _exchanges(module: str, stacks: dict[str, tuple[Frame, ...]]) -> Iterator[Exchange]:
    cut_again = gathered_to_be_cut(COMMENT.sub("", module))
    bodies = set(re.findall(r"\bbody=%([\w.\-]+)", module))
    computation = ""
    for line in io.StringIO(module):
        if line[:1] in "%E" and line.rstrip().endswith("{"):
            computation = line.removeprefix("ENTRY ").split(maxsplit=1)[0].lstrip("%")
        found = _COLLECTIVE.search(COMMENT.sub("", line)) if " = " in line else None
        if found is None:
            continue
        name, shape, kind, _, rest = found.groups()
        groups = _groups(rest)
        factor = max(map(len, groups), default=1) if kind == "reduce-scatter" else 1
        yield Exchange(
            kind,
            _size(shape) * factor,
            groups,
            operation_of(rest),
            stacks.get(name, ()),
            computation in bodies,
            shape.partition("{")[0],
            name in cut_again,
        )


def _groups(rest: str) -> frozenset[frozenset[int]]:
    grid = _GRID.search(rest)
    if grid is not None:
        sizes, wide, axes = (
            [int(number) for number in part.split(",")] if part else [] for part in grid.groups()
        )
        total = math.prod(wide)
        if len(sizes) != 2 or not 0 < total <= MOST_DEVICES:
            return frozenset()
        order = transposed(wide, axes, total)
        step = sizes[1]
        return frozenset(frozenset(order[at : at + step]) for at in range(0, len(order), step))
    listed = _LISTED.search(rest)
    if listed is None:
        return frozenset()
    return frozenset(
        frozenset(int(number) for number in group.split(",") if number)
        for group in re.findall(r"\{([\d,]*)\}", listed[1])
    )


def _size(shape: str) -> int:
    return sum(
        math.ceil(item_bytes(dtype) * math.prod(int(size) for size in sizes.split(",") if size))
        for dtype, sizes in _SHAPE.findall(shape)
    )
