"""What lies where in a program that is one program for all devices (SPMD).

A *sharding* says which part of a tensor each device holds. XLA writes it as the number of tiles
along each dimension and the devices in the order of the tiles ("{devices=[2,1,4]0,2,4,6,1,3,5,7
last_tile_dim_replicate}"; the last number are devices with the same tile), "{replicated}", or not
at all, which means the same (``xla/hlo/ir/hlo_sharding.cc``; seen in torch_xla 2.9.0).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xladoctor.findings import Location

#: Names that people give to the axis along which the batch is divided (torch_xla's guides on SPMD
#: and FSDPv2, Hugging Face, torchprime). A batch may stay whole along axes of other names.
BATCH_AXES = frozenset({"data", "dp", "batch", "fsdp", "dcn", "replica", "replicas"})

#: More devices than any slice has; what a damaged or invented record may ask for.
MOST_DEVICES = 65_536

_SHORT = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "s64",
    "int32": "s32", "int16": "s16", "int8": "s8", "uint8": "u8", "bool": "pred",
}  # fmt: skip
#: What torch calls the types that XLA names.
DTYPES = {short: name for name, short in _SHORT.items()}
_TILES = re.compile(r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))?")


@dataclasses.dataclass(frozen=True, slots=True)
class Mesh:
    """Devices as a grid with named axes.

    Attributes:
        axes: Names, "" for one without.
        shape: Devices along each axis.
        devices: Their numbers, in the order of the grid.
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    devices: tuple[int, ...]

    def groups(self, axes: Sequence[int]) -> frozenset[frozenset[int]]:
        """The devices that differ only along some axes: those that exchange data over them."""
        kept: dict[tuple[int, ...], set[int]] = {}
        for at, device in zip(self._places, self.devices, strict=False):
            rest = tuple(at[axis] for axis in range(len(self.shape)) if axis not in axes)
            kept.setdefault(rest, set()).add(device)
        return frozenset(frozenset(group) for group in kept.values())

    @property
    def _places(self) -> itertools.product[tuple[int, ...]]:
        return itertools.product(*(range(size) for size in self.shape))

    def along(self, groups: frozenset[frozenset[int]]) -> tuple[str, ...] | None:
        """The axes over which groups of devices exchange data; None if it is not by axes."""
        numbered = range(len(self.shape))
        for count in range(1, len(self.shape) + 1):
            for axes in itertools.combinations(numbered, count):
                if self.groups(axes) == groups:
                    return self.named(axes)
        return None

    def between(self, pairs: frozenset[frozenset[int]]) -> tuple[str, ...] | None:
        """The axes along which pairs of devices that send to each other differ."""
        place_of = dict(zip(self.devices, self._places, strict=False))
        axes: set[int] = set()
        for pair in pairs:
            places = [place_of.get(device) for device in pair]
            if None in places:
                return None
            known = [place for place in places if place is not None]
            axes |= {
                axis for axis in range(len(self.shape)) if len({place[axis] for place in known}) > 1
            }
        return self.named(sorted(axes)) or None

    def named(self, axes: Iterable[int]) -> tuple[str, ...]:
        """The names of some axes."""
        return tuple(self.axes[axis] or f"axis {axis}" for axis in axes)


@dataclasses.dataclass(frozen=True, slots=True)
class Tiling:
    """How a tensor is cut.

    Attributes:
        tiles: Along each dimension.
        copies: Devices that hold the same tile.
        order: Devices in the order of the tiles; empty if not known.
    """

    tiles: tuple[int, ...]
    copies: int
    order: tuple[int, ...] = ()

    @property
    def replicated(self) -> bool:
        """Whether every device holds all of it."""
        return all(tiles == 1 for tiles in self.tiles)


def tiling(spec: str, dimensions: int, devices: int) -> Tiling | None:
    """Read a sharding.

    Args:
        spec: As XLA writes it; "" for none.
        dimensions: Of the tensor.
        devices: Of the program.

    Returns:
        How the tensor is cut; None for what is neither tiled nor replicated (a manual sharding).
    """
    if spec in ("", "{replicated}"):
        return Tiling((1,) * dimensions, devices)
    found = _TILES.search(spec)
    if found is None:
        return None
    sizes = _numbers(found[1])
    total = math.prod(sizes)
    if len(sizes) < dimensions or not 0 < total <= MOST_DEVICES:
        return None
    return Tiling(sizes[:dimensions], math.prod(sizes[dimensions:]), _order(found, total))


def _order(found: re.Match[str], total: int) -> tuple[int, ...]:
    if found[4]:
        return _numbers(found[4])
    if not found[2]:
        return ()
    return transposed(_numbers(found[2]), _numbers(found[3] or ""), total)


def transposed(sizes: Sequence[int], axes: Sequence[int], total: int) -> tuple[int, ...]:
    """The numbers below ``total`` as a grid with its axes in another order ("<=[4,2]T(1,0)").

    Returns:
        Empty if the sizes and axes do not make such a grid.
    """
    axes = axes or range(len(sizes))
    if math.prod(sizes) != total or sorted(axes) != list(range(len(sizes))):
        return ()
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    places = itertools.product(*(range(sizes[axis]) for axis in axes))
    return tuple(
        sum(at * steps[axis] for at, axis in zip(place, axes, strict=True)) for place in places
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


@dataclasses.dataclass(frozen=True, slots=True)
class ShardedTensor:
    """One tensor of a step.

    Attributes:
        kind: "parameter", "buffer", "state" (of an optimizer), "input", or "product": what matrix
            products or convolutions of a line of the forward pass give.
        name: As the model names it; "" for inputs; the operation of products.
        shape: Sizes of the whole tensor.
        dtype: As torch names it ("bfloat16").
        bytes: Of the whole tensor.
        spec: Its sharding as XLA writes it, "" for none.
        devices: Of the program.
        location: Where it was marked or sent to the device; None if not known.
        declared: Its sharding after the first step, if that was another.
    """

    kind: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    spec: str
    devices: int
    location: Location | None = None
    declared: str | None = None

    @property
    def tiling(self) -> Tiling | None:
        """How it is cut."""
        return tiling(self.spec, len(self.shape), self.devices)

    @property
    def replicated(self) -> bool:
        """Whether every device holds all of it."""
        cut = self.tiling
        return cut is not None and cut.replicated

    @property
    def device_bytes(self) -> int:
        """What each device holds of it, filled up to whole tiles."""
        cut = self.tiling
        if cut is None or not math.prod(self.shape):
            return self.bytes
        item = self.bytes // math.prod(self.shape)
        pieces = (-(-size // tiles) for size, tiles in zip(self.shape, cut.tiles, strict=True))
        return math.prod(pieces) * item

    @property
    def uneven(self) -> tuple[tuple[int, int], ...]:
        """(dimension, tiles) where the tiles do not divide the size: the rest is padding."""
        cut = self.tiling
        if cut is None:
            return ()
        return tuple(
            (at, tiles)
            for at, (size, tiles) in enumerate(zip(self.shape, cut.tiles, strict=True))
            if size % tiles
        )

    def axes(self, meshes: Sequence[Mesh]) -> tuple[tuple[str, ...], ...] | None:
        """For each dimension the axes of a mesh that it is cut along; None if no mesh fits."""
        cut = self.tiling
        if cut is None:
            return None
        if cut.replicated:
            return ((),) * len(self.shape)
        return next((found for mesh in meshes if (found := _axes(cut, mesh)) is not None), None)


def shape(one: ShardedTensor) -> str:
    """Type and sizes of the whole tensor as XLA writes them ("f32[8,2]")."""
    short = _SHORT.get(one.dtype, one.dtype)
    return f"{short}[{','.join(map(str, one.shape))}]"


@functools.lru_cache(maxsize=1000)
def _axes(cut: Tiling, mesh: Mesh) -> tuple[tuple[str, ...], ...] | None:
    if len(cut.order) != len(mesh.devices):
        return None
    rows = list(itertools.product(*(range(size) for size in (*cut.tiles, cut.copies))))
    tile_of = dict(zip(cut.order, rows, strict=False))
    used: list[tuple[str, ...]] = []
    for dimension, tiles in enumerate(cut.tiles):
        if tiles == 1:
            used.append(())
            continue
        parts: dict[int, set[int]] = {}
        for device, row in tile_of.items():
            parts.setdefault(row[dimension], set()).add(device)
        rest = frozenset(frozenset(part) for part in parts.values())
        along = next(
            (
                axes
                for count in range(1, len(mesh.shape) + 1)
                for axes in itertools.combinations(range(len(mesh.shape)), count)
                if mesh.groups([axis for axis in range(len(mesh.shape)) if axis not in axes])
                == rest
            ),
            None,
        )
        if along is None:
            return None
        used.append(mesh.named(along))
    return tuple(used)


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceCollective:
    """Exchanges of one kind that one line puts into the graph of a step.

    Attributes:
        kind: XLA's name ("all-gather").
        count: In one step; those in a loop of the graph count once.
        bytes: Of one device's result (reduce-scatter: of its input), of all of them.
        axes: Axes of the mesh over which the devices exchange; None if they are not of one.
        operation: torch's operation that they serve ("aten::mm"), "" if not known.
        location: The user's line; None if not known.
        looped: Whether some are in a loop of the graph.
        shape: Of the largest result ("f32[16,32]").
        cut_again: Whether it holds the tensor whole on every device, and only slices of it are
            used: two shardings do not fit.
    """

    kind: str
    count: int
    bytes: int
    axes: tuple[str, ...] | None
    operation: str
    location: Location | None
    looped: bool = False
    shape: str = ""
    cut_again: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Sharding:
    """What lies where after the step that was looked at, and what its graph exchanges.

    Attributes:
        devices: Of the program.
        step: The optimizer step after which it was looked at.
        meshes: The meshes of the program.
        tensors: The largest first.
        others: Bytes of smaller tensors that have no entry.
        collectives: Of the graph of a step, most bytes first; None if that graph was not kept.
    """

    devices: int
    step: int
    meshes: tuple[Mesh, ...]
    tensors: tuple[ShardedTensor, ...]
    others: int
    collectives: tuple[DeviceCollective, ...] | None

    @property
    def device_bytes(self) -> int:
        """What each device holds of all of it."""
        return sum(tensor.device_bytes for tensor in self.tensors) + self.others


def to_json(
    sharding: Sharding, place: Callable[[Location | None], dict[str, Any] | None]
) -> dict[str, Any]:
    """The part ``sharding`` of a report in JSON; ``bytes`` are those of whole tensors.

    Args:
        sharding: Of one run.
        place: Writes a location.
    """
    return {
        "devices": sharding.devices,
        "step": sharding.step,
        "meshes": [
            {"axes": list(mesh.axes), "shape": list(mesh.shape)} for mesh in sharding.meshes
        ],
        "device_bytes": sharding.device_bytes,
        "tensors": [
            {
                "kind": tensor.kind,
                "name": tensor.name,
                "shape": list(tensor.shape),
                "dtype": tensor.dtype,
                "bytes": tensor.bytes,
                "device_bytes": tensor.device_bytes,
                "replicated": tensor.replicated,
                "sharding": tensor.spec,
                "axes": None
                if (axes := tensor.axes(sharding.meshes)) is None
                else [list(along) for along in axes],
                "location": place(tensor.location),
            }
            for tensor in sharding.tensors
        ],
        "collectives": None
        if sharding.collectives is None
        else [
            {
                "kind": one.kind,
                "count": one.count,
                "bytes": one.bytes,
                "axes": None if one.axes is None else list(one.axes),
                "operation": one.operation,
                "location": place(one.location),
                "looped": one.looped,
            }
            for one in sharding.collectives
        ],
    }
