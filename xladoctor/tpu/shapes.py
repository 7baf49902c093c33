"""Shapes as the TPU compiler writes them: types, sizes, layouts, tiles, and what they cost.

``f32[1000,1025]{0,1:T(8,128)S(1)}``: dimension 0 is the fastest to vary, then 1; the two fastest
are stored in tiles of 8 x 128, so both are rounded up; it lies in memory space 1 (on the chip, not
in HBM). A second tile, as in ``T(8,128)(2,1)``, orders the elements within a tile.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ARRAY = re.compile(r"\b([a-z]+\d*\w*)\[([\d,<=]*)\](?:\{([\d,]*)(?::([^}]*))?\})?")
_TILE = re.compile(r"T\(([\d,*]+)\)")
_SPACE = re.compile(r"S\((\d+)\)")

_BYTES = {
    "pred": 1.0, "s4": 0.5, "u4": 0.5, "s8": 1.0, "u8": 1.0, "s16": 2.0, "u16": 2.0, "f16": 2.0,
    "bf16": 2.0, "s32": 4.0, "u32": 4.0, "f32": 4.0, "s64": 8.0, "u64": 8.0, "f64": 8.0,
    "c64": 8.0, "c128": 16.0,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """One array of a shape.

    Attributes:
        dtype: "f32".
        sizes: Of the dimensions, as the program sees them.
        stored: Of the same dimensions, as they are stored (rounded up to tiles).
        space: Memory space; 0 is the device's memory (HBM).
    """

    dtype: str
    sizes: tuple[int, ...]
    stored: tuple[int, ...]
    space: int

    @property
    def unpadded(self) -> int:
        """Bytes of the elements."""
        return math.ceil(math.prod(self.sizes) * _BYTES.get(self.dtype, 1.0))

    @property
    def padded(self) -> int:
        """Bytes that are stored."""
        return math.ceil(math.prod(self.stored) * _BYTES.get(self.dtype, 1.0))


@functools.lru_cache(maxsize=20_000)
def arrays(shape: str) -> tuple[Array, ...]:
    """The arrays of a shape; a tuple has several."""
    return tuple(_arrays(shape))


def _arrays(shape: str) -> Iterator[Array]:
    for dtype, inside, order, layout in _ARRAY.findall(shape):
        sizes = tuple(int(size.lstrip("<=")) for size in inside.split(",") if size)
        fastest = [int(one) for one in order.split(",") if one]
        tile = _TILE.search(layout)
        space = _SPACE.search(layout)
        stored = list(sizes)
        if tile is not None and len(fastest) == len(sizes):
            edges = [int(edge) if edge.isdigit() else 1 for edge in tile[1].split(",")]
            for dimension, edge in zip(fastest, reversed(edges), strict=False):
                stored[dimension] = math.ceil(stored[dimension] / edge) * edge
            if not sizes:
                stored = [math.prod(edges)]
        yield Array(dtype, sizes, tuple(stored), int(space[1]) if space else 0)


def padded(shape: str, space: int | None = None) -> int:
    """Bytes that a shape takes where it is stored; of one memory space only, if given."""
    return sum(one.padded for one in arrays(shape) if space is None or one.space == space)


def unpadded(shape: str) -> int:
    """Bytes of a shape's elements, wherever it lies."""
    return sum(one.unpadded for one in arrays(shape))


def plain(shape: str) -> str:
    """A shape without its layout ("f32[1000,1025]")."""
    return re.sub(r"(?<=\])\{[^}]*\}", "", shape)
