"""What an SPMD program divides among its devices, as texts that all formats share."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor.report import device, words
from xladoctor.shardings import shape

if TYPE_CHECKING:
    from xladoctor.shardings import Mesh, ShardedTensor, Sharding


@dataclasses.dataclass(frozen=True, slots=True)
class TensorLine:
    """One tensor; ``whole`` if every device holds all of it."""

    kind: str
    name: str
    sharded: str
    held: str
    total: str
    whole: bool


@dataclasses.dataclass(frozen=True, slots=True)
class CollectiveLine:
    """The exchanges of one kind, line and axis."""

    kind: str
    count: str
    size: str
    over: str
    line: str
    operation: str


def devices(sharding: Sharding) -> str:
    """How many devices, and the meshes: "8 devices (data 4 x model 2)"."""
    meshes = "; ".join(_mesh(mesh) for mesh in sharding.meshes[:3])
    counted = "1 device" if sharding.devices == 1 else f"{sharding.devices} devices"
    return counted + (f" ({meshes})" if meshes else "")


def _mesh(mesh: Mesh) -> str:
    return " x ".join(
        f"{axis} {count}".strip() for axis, count in zip(mesh.axes, mesh.shape, strict=True)
    )


def tensors(sharding: Sharding) -> list[TensorLine]:
    """What each device holds most of first; optimizer state of one parameter together."""
    groups: dict[object, list[ShardedTensor]] = {}
    for one in sharding.tensors:
        name = one.name.partition(":")[0] if one.kind == "state" else one.name
        groups.setdefault((one.kind, name, one.location, one.shape, one.spec), []).append(one)
    ordered = sorted(groups.values(), key=lambda ones: -sum(one.device_bytes for one in ones))
    return [_line(ones, sharding.meshes) for ones in ordered]


def _line(ones: list[ShardedTensor], meshes: tuple[Mesh, ...]) -> TensorLine:
    first = ones[0]
    name = first.name or words.place(first.location)
    if first.kind == "product":
        name = f"{words.place(first.location)} {name}"
    if first.kind == "state":
        keys = ", ".join(one.name.partition(": ")[2] for one in ones)
        name = f"{name.partition(':')[0]}: {keys}"
    return TensorLine(
        {"state": "optimizer"}.get(first.kind, first.kind),
        f"{name} {shape(first)}",
        _sharded(first, meshes),
        device.size(sum(one.device_bytes for one in ones)),
        device.size(sum(one.bytes for one in ones)),
        first.replicated and bool(first.shape),
    )


def _sharded(one: ShardedTensor, meshes: tuple[Mesh, ...]) -> str:
    if one.replicated:
        return "whole on each" if one.shape else "a number"
    axes = one.axes(meshes)
    cut = one.tiling
    if cut is None:
        return "by hand"
    if axes is None and one.kind == "product":
        axes = _by_size(cut.tiles, meshes)
    if axes is None:
        return " x ".join(map(str, cut.tiles)) + " tiles"
    return ", ".join(
        f"dim {dimension} over {' and '.join(along)}"
        for dimension, along in enumerate(axes)
        if along
    )


def _by_size(
    tiles: tuple[int, ...], meshes: tuple[Mesh, ...]
) -> tuple[tuple[str, ...], ...] | None:
    """The axes of a mesh that are as long as a dimension has parts; None unless it is one each."""
    if len(meshes) != 1:
        return None
    found: list[tuple[str, ...]] = []
    for count in tiles:
        sizes = enumerate(meshes[0].shape)
        fitting = [axis for axis, size in sizes if size == count] if count > 1 else []
        if count > 1 and len(fitting) != 1:
            return None
        found.append(meshes[0].named(fitting))
    named = [axis for axes in found for axis in axes]
    return tuple(found) if len(named) == len(set(named)) else None


def collectives(sharding: Sharding) -> list[CollectiveLine]:
    """Most bytes first."""
    return [
        CollectiveLine(
            one.kind,
            f"{one.count}{' (loop)' if one.looped else ''}",
            device.size(one.bytes),
            "some devices" if one.axes is None else " and ".join(one.axes),
            words.place(one.location) if one.location else "backward pass",
            one.operation,
        )
        for one in sharding.collectives or ()
    ]
