"""What follows from the rows of a plan, as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xladoctor.planning.row import Row

#: A difference in device time for a sample that is worth a sentence.
NOTABLE = 0.03

#: How near sizes are that are compared: a much larger batch is better for other reasons.
NEAR = 0.8

#: Tensors are stored in tiles of 8 (16 in bfloat16) by 128; the second is also the side of a matrix
#: unit: https://openxla.org/xla/tiled_layout, and any layout of libtpu ("{1,0:T(8,128)}").
TILES = (128, 8)


def advice(rows: Sequence[Row]) -> list[str]:
    """The largest that fits on each target, and what multiples of 8 and 128 change."""
    said = []
    for target in dict.fromkeys(row.target for row in rows):
        mine = [row for row in rows if row.target == target and row.error is None]
        said += _largest(target, mine)
        said += _tiles(target, [row for row in mine if row.samples_per_second])
    return said


def shown(values: dict[str, str]) -> str:
    """What was chosen, as one would type it."""
    return " ".join(f"{name} {value}" for name, value in values.items()) or "the command"


def _largest(target: str, rows: Sequence[Row]) -> list[str]:
    fitting = [row for row in rows if row.fits]
    if not rows or not rows[0].values:
        return []
    if not fitting:
        return [f"{target}: none of these fits"]
    best = max(fitting, key=lambda row: (row.samples or 0, row.memory_bytes or 0))
    text = f"{target}: the largest that fits is {shown(best.values)}"
    fast = max(fitting, key=lambda row: row.samples_per_second or 0.0)
    if fast is not best and _better(fast, best) > NOTABLE:
        text += f", the fastest per sample is {shown(fast.values)}"
    return [text]


def _better(fast: Row, slow: Row) -> float:
    """By how much a sample takes less device time, as a share."""
    if not fast.samples_per_second or not slow.samples_per_second:
        return 0.0
    return 1 - slow.samples_per_second / fast.samples_per_second


def _tiles(target: str, rows: Sequence[Row]) -> Iterable[str]:
    """For each size beside a tile's multiple: the next measured one that is a multiple."""
    for row in rows:
        size = row.samples or 0
        tile = next((one for one in reversed(TILES) if size % one), None)
        others = [
            other
            for other in rows
            if tile is not None
            and other.samples
            and other.samples % tile == 0
            and NEAR * size <= other.samples <= size / NEAR
        ]
        for other in others[:1]:
            gain = _better(other, row)
            if abs(gain) > NOTABLE:
                more = "less" if gain > 0 else "more"
                yield (
                    f"{target}: {other.samples} samples, a multiple of {tile}, take "
                    f"{abs(gain):.0%} {more} device time per sample than {size}"
                )
