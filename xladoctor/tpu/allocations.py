"""Reads where the compiler puts tensors: its buffer assignment, and its table when it refuses.

Facts used (libtpu 0.0.21): ``*buffer-assignment.txt`` of a dump lists each allocation with its
values ("value: <65 copy.4 @0> (size=4227072,offset=0): f32[...]"); ``color`` other than 0 is memory
on the chip; ``BufferLiveRange`` says from where to where in the schedule each value lives. A
refusal for want of memory says "Used 9.78G of 7.48G hbm" and lists the largest allocations, or is
one sentence with sizes in bytes if a single tensor is too large.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING

from xladoctor.tpu import shapes
from xladoctor.tpu.compiled import Allocation, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How many of the largest tensors are kept, and at how many places of the schedule memory is told.
LARGEST, PLACES = 16, 120

_ALLOCATION = re.compile(r"allocation \d+: size (\d+)(.*)")
_VALUE = re.compile(r"\s*value: <\d+ (\S+?) @\d+> \(size=(\d+),offset=(\d+)\): (.*)")
_RANGE = re.compile(r"\s+(\S+):(\d+)-(\d+)$")
_USED = re.compile(r"Used ([\d.]+[KMGT]?) of ([\d.]+[KMGT]?) (\w+)")
_BEYOND = re.compile(r"Allocation \(size=(\d+)\) would exceed memory \(size=(\d+)\)")
_ENTRY = re.compile(
    r"\d+\. Size: (?P<size>[\d.]+[KMGT]?)\s*\n(?P<rest>(?:(?!\s*=====).*\n)*)", re.MULTILINE
)
_SOURCE = re.compile(r'source_file="xladoctor" source_line=(\d+)')
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True, slots=True)
class _Value:
    name: str
    size: int
    shape: str
    kind: str
    temporary: bool
    place: tuple[int, int]


def read(text: str, sources: Mapping[str, int]) -> tuple[tuple[Allocation, ...], tuple[int, ...]]:
    """The largest tensors alive at the peak, and temporary bytes along the schedule.

    Args:
        text: The buffer assignment.
        sources: Numbers of the instructions of the schedule by name (``Optimized.sources``).
    """
    values = _values(text)
    ranges: dict[str, tuple[int, int]] = {}
    end = 0
    for row in text[max(0, text.find("BufferLiveRange:")) :].splitlines()[1:]:
        if "Live ranges at" in row:
            break
        found = _RANGE.match(row)
        if found is not None:
            ranges[found[1].removesuffix("{}")] = (int(found[2]), int(found[3]))
            end = max(end, int(found[3]))
    alive = _sweep([value for value in values if value.temporary], ranges, end)
    peak = max(range(len(alive)), key=alive.__getitem__) if alive else 0
    kept = []
    for value in values:
        lives = ranges.get(value.name)
        if not value.temporary or lives is None or lives[0] <= peak <= lives[1]:
            kept.append((value, lives))
    # What is computed in place is two values and one piece of memory: the one whose line is known.
    kept.sort(key=lambda item: (-item[0].size, item[0].name.partition("{")[0] not in sources))
    shown = {one[0].place: one[0].name for one in reversed(kept) if one[0].temporary}
    kept = [one for one in kept if not one[0].temporary or shown[one[0].place] == one[0].name]
    largest = tuple(_allocation(value, lives, end, sources) for value, lives in kept[:LARGEST])
    return largest, _thinned(alive)


def _allocation(
    value: _Value, lives: tuple[int, int] | None, end: int, sources: Mapping[str, int]
) -> Allocation:
    return Allocation(
        kind=value.kind,
        shape=value.shape,
        size=value.size,
        unpadded=sum(one.unpadded for one in shapes.arrays(value.shape)),
        source=sources.get(value.name.partition("{")[0]),
        first=lives[0] / (end + 1) if lives else None,
        last=(lives[1] + 1) / (end + 1) if lives else None,
    )


def _values(text: str) -> list[_Value]:
    """The values that lie in device memory; each place of an argument or output once."""
    found: list[_Value] = []
    kind = ""
    number = 0
    for row in text.splitlines():
        if row.startswith("Total bytes used"):
            break
        allocation = _ALLOCATION.match(row)
        if allocation is not None:
            number += 1
            facts = allocation[2]
            on_chip = re.search(r"color [1-9]", facts) is not None
            kind = "" if on_chip or "thread-local" in facts or "constant" in facts else _kind(facts)
            taken: set[str] = set()
            continue
        value = _VALUE.match(row)
        if value is None or not kind or value[4].startswith("("):
            continue
        if kind != "temporary":
            if value[3] in taken:
                continue
            taken.add(value[3])
        place = (number, int(value[3]))
        found.append(_Value(value[1], int(value[2]), value[4], kind, kind == "temporary", place))
    return found


def _kind(facts: str) -> str:
    if "parameter" in facts:
        return "argument"
    return "output" if "maybe-live-out" in facts else "temporary"


def _sweep(values: list[_Value], ranges: Mapping[str, tuple[int, int]], end: int) -> list[int]:
    """Bytes alive at each position of the schedule."""
    change = [0] * (end + 2)
    places: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for value in values:
        lives = ranges.get(value.name)
        if lives is not None:
            places.setdefault(value.place, []).append((*lives, value.size))
    for spans in places.values():
        for first, last, size in _joined(spans):
            change[first] += size
            change[last + 1] -= size
    alive, now = [], 0
    for step in change[:-1]:
        now += step
        alive.append(now)
    return alive


def _joined(spans: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Values that lie in one place at one time are one piece of memory: of the largest's size."""
    found: list[tuple[int, int, int]] = []
    for first, last, size in sorted(spans):
        if found and first <= found[-1][1]:
            before = found.pop()
            found.append((before[0], max(before[1], last), max(before[2], size)))
        else:
            found.append((first, last, size))
    return found


def _thinned(alive: list[int]) -> tuple[int, ...]:
    """The largest of each stretch, so that no peak is lost."""
    if len(alive) <= PLACES:
        return tuple(alive)
    edges = [round(place * len(alive) / PLACES) for place in range(PLACES + 1)]
    return tuple(max(alive[a:b]) for a, b in itertools.pairwise(edges))


def out_of_memory(message: str) -> tuple[Refusal, tuple[Allocation, ...]] | None:
    """What a refusal for want of memory says; None if the message is of something else."""
    used = _USED.search(message)
    if used is not None and used[3] != "hbm":
        return None  # memory on the chip: the compiler's own affair, no smaller batch helps
    beyond = _BEYOND.search(message)
    if used is not None:
        need, limit = _bytes(used[1]), _bytes(used[2])
        sentence = (
            f"does not fit: it needs {used[1]}iB of {used[2]}iB of device memory"
            if used[1][-1] in "KMGT"
            else f"does not fit: it needs {need:,} of {limit:,} bytes of device memory"
        )
    elif beyond is not None:
        need, limit = int(beyond[1]), int(beyond[2])
        sentence = f"does not fit: one tensor alone takes {need:,} of {limit:,} bytes"
    else:
        return None
    return Refusal("memory", sentence, need, limit), _table(message)


def _table(message: str) -> tuple[Allocation, ...]:
    """The table of the largest allocations, those of the program and those of its arguments."""
    found = []
    for entry in _ENTRY.finditer(message):
        rest = entry["rest"]
        shape = re.search(r"Shape: (\S.*)", rest)
        unpadded = re.search(r"Unpadded size: ([\d.]+[KMGT]?)", rest)
        source = _SOURCE.search(rest)
        size = _bytes(entry["size"])
        if shape is None or size < _SMALL:
            continue
        label = re.search(r"Allocation type: (.*)", rest)
        kind = label[1].strip().lower() if label else ""
        found.append(
            Allocation(
                kind="argument" if "param" in kind or "arg" in kind else "temporary",
                shape=shape[1].strip(),
                size=size,
                unpadded=_bytes(unpadded[1]) if unpadded else None,
                source=int(source[1]) if source else None,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.size)[:LARGEST])


#: Smaller ones in the table of a refusal say nothing (the compiler's own scratch space).
_SMALL = 2**16


def _bytes(text: str) -> int:
    unit = text[-1] if text[-1] in _UNITS else ""
    return round(float(text.removesuffix(unit)) * _UNITS[unit])
