"""How an SPMD graph's products are divided: matrix products and convolutions of the forward pass.

XLA tells the shardings of what outlives a graph alone. Of what is inside it, the graph before and
after the division say the same by sizes: a product of [512, 128] that is [128, 128] on each device
is cut into four along its first dimension. Products keep their stacks in both (torch_xla 2.9.0,
seen in its dumps). Those of one line, layers that a loop calls one after the other, follow in both
in the order of the program, for each needs the one before. Where sizes do not divide, a line is
left out; so is the backward pass, which has no lines.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import math
import operator
import re
from typing import TYPE_CHECKING

from xladoctor import files
from xladoctor.readings.hlo import COMMENT, item_bytes, operation_of, stacks_of
from xladoctor.readings.wire import messages

if TYPE_CHECKING:
    from pathlib import Path

    from xladoctor.readings.tables import Frame

_PRODUCT = re.compile(
    r"%([\w.\-]+) = (\w+)\[([\d,]*)\](?:\{[^}]*\})? (dot|convolution)\(([^)]*)\)(.*)"
)
#: What a product is known by in both graphs: kind, torch's name, lines.
_Key = tuple[str, str, tuple["Frame", ...]]
_Sizes = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """The products of one line.

    Attributes:
        operation: Torch's name ("aten::mm").
        dtype: As XLA names it ("f32").
        shape: Of one result, undivided.
        tiles: Into how many parts each dimension is cut.
        count: How many there are.
        frames: Where they were traced, innermost first.
    """

    operation: str
    dtype: str
    shape: tuple[int, ...]
    tiles: tuple[int, ...]
    count: int
    frames: tuple[Frame, ...]

    @property
    def bytes(self) -> int:
        """Of all results, undivided."""
        return math.ceil(item_bytes(self.dtype) * math.prod(self.shape)) * self.count


def products(base: Path) -> list[Product]:
    """The products of a graph of a run directory that its lines tell apart.

    Args:
        base: Path without ending ("run/p1-2/graphs/0003").

    Returns:
        Empty if the divided graph was not kept.
    """
    try:
        module = files.unpacked(base.with_name(base.name + ".part.txt.z")).decode(
            "utf-8", "replace"
        )
        graph = files.unpacked(base.with_name(base.name + ".txt.z")).decode("utf-8", "replace")
        before = _sizes(graph, _stacks(base, ".pb.z"))
        after = _sizes(module, _stacks(base, ".part.pb.z"))
    except (OSError, IndexError, ValueError, KeyError):
        return []
    found: collections.Counter[tuple[_Key, str, _Sizes, _Sizes]] = collections.Counter()
    for key, sizes in before.items():
        parts = after.get(key, [])
        cut = [_tiles(whole, part) for (_, whole), (_, part) in zip(sizes, parts, strict=False)]
        if len(parts) != len(sizes) or None in cut:
            continue
        found.update(
            (key, dtype, whole, tiles)
            for (dtype, whole), tiles in zip(sizes, cut, strict=True)
            if tiles is not None
        )
    made = (
        Product(key[1], dtype, shape, tiles, count, key[2])
        for (key, dtype, shape, tiles), count in found.items()
    )
    return sorted(made, key=lambda one: -one.bytes)


def _tiles(whole: _Sizes, part: _Sizes) -> _Sizes | None:
    if len(whole) != len(part) or 0 in part or any(map(operator.mod, whole, part)):
        return None
    return tuple(map(operator.floordiv, whole, part))


def _stacks(base: Path, ending: str) -> dict[str, tuple[Frame, ...]]:
    packed = messages(files.unpacked(base.with_name(base.name + ending)), 1)
    return stacks_of(packed[0]) if packed else {}


def _sizes(
    module: str, stacks: dict[str, tuple[Frame, ...]]
) -> dict[_Key, list[tuple[str, _Sizes]]]:
    """The types and sizes of the products of each line."""
    found = collections.defaultdict[_Key, list[tuple[str, _Sizes]]](list)
    for line in io.StringIO(module):
        told = _PRODUCT.search(COMMENT.sub("", line)) if " = " in line else None
        frames = () if told is None else stacks.get(told[1], ())
        if told is None or not frames:
            continue
        sizes = tuple(int(size) for size in told[3].split(",") if size)
        found[told[4], operation_of(told[6]), frames].append((told[2], sizes))
    return found
