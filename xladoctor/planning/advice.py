"""What follows from the rows of a plan, as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.costs import WHY_OTHER_MEMORY, other_memory

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
        said += dict.fromkeys(_tiles(target, [row for row in mine if row.device_seconds]))
    return said


def why_other_memory(rows: Sequence[Row]) -> list[str]:
    """Why one command takes different amounts of memory on the targets, if it does."""
    by_command: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        if row.memory_bytes is not None:
            by_command.setdefault(row.command, []).append(row.memory_bytes)
    differ = any(other_memory(known) for known in by_command.values())
    return [WHY_OTHER_MEMORY.removesuffix(".")] if differ else []


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
    """By how much a sample takes less device time, as a share; a step, if samples are not known."""
    if not fast.device_seconds or not slow.device_seconds:
        return 0.0
    if fast.samples and slow.samples:
        return 1 - (fast.device_seconds / fast.samples) / (slow.device_seconds / slow.samples)
    return 1 - fast.device_seconds / slow.device_seconds


def _tiles(target: str, rows: Sequence[Row]) -> Iterable[str]:
    """For each size beside a tile's multiple: the next measured one that is a multiple.

    A size is what an option chooses (a width, a number of classes), or the samples of a step if
    these follow from it. A larger model may take longer: only one that takes less is told.
    """
    for name in dict.fromkeys(name for row in rows for name in row.values):
        for row in rows:
            size, batch = _size(row, name, rows)
            tile = next((one for one in reversed(TILES) if size and size % one), None)
            if tile is None:
                continue
            others = [
                (_size(other, name, rows)[0], other)
                for other in _alike(row, name, rows)
                if (near := _size(other, name, rows)[0])
                and near % tile == 0
                and NEAR * size <= near <= size / NEAR
            ]
            for near, other in sorted(others, key=lambda item: abs(item[0] - size))[:1]:
                gain = _better(other, row)
                if gain > NOTABLE or (batch and gain < -NOTABLE):
                    less = f"{abs(gain):.0%} {'less' if gain > 0 else 'more'} device time"
                    yield (
                        f"{target}: {near:,} samples, a multiple of {tile}, take {less} per sample "
                        f"than {size:,}"
                        if batch
                        else f"{target}: {shown({name: other.values[name]})}, a multiple of "
                        f"{tile}, takes {less} than {shown({name: row.values[name]})}"
                    )


def _alike(row: Row, name: str, rows: Sequence[Row]) -> list[Row]:
    """Rows that differ in what one option chooses, and in nothing else."""
    rest = {**row.values, name: ""}
    return [one for one in rows if one is not row and {**one.values, name: ""} == rest]


def _size(row: Row, name: str, rows: Sequence[Row]) -> tuple[int, bool]:
    """What an option chooses, and whether it is the batch; 0 if it is no whole number."""
    known = {one.samples for one in (row, *_alike(row, name, rows))}
    if row.samples and None not in known and len(known) > 1:
        return row.samples, True
    value = row.values.get(name, "")
    return (int(value) if value.isdecimal() else 0), False
