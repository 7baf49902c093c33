"""Bytes that an instruction moves between the device's memory and the core, at most.

Counted as XLA's own analysis counts them (``HloCostAnalysis``; ``tests/tpu/test_products_xla.py``
holds it): what takes rows out of a table reads those rows and not the table, what writes rows into
one writes those alone, also where it is fused with other operations. Unlike XLA's, the bytes are
those that are stored, padding included, and only those in device memory (HBM).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.tpu import shapes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xladoctor.tpu.optimized import Line

#: What reads only as much of its first operand as it gives.
_TAKES = frozenset({"gather", "dynamic-slice", "slice"})

#: What writes a part of its first operand, in its place: the operand with the part.
_PUTS = {"scatter": 2, "dynamic-update-slice": 1}

#: What begins in the background and whose result also names what it reads.
_NAMES_BOTH = frozenset(
    {"copy-start", "async-start", "all-gather-start", "collective-permute-start"}
)

#: What only names or regroups what it is given.
_SAME = frozenset({"bitcast", "tuple", "get-tuple-element", "reshape"})


def moved(line: Line, shapes_of: Mapping[str, str], fused: Sequence[Line] = ()) -> int:
    """Bytes of one run of an instruction.

    Args:
        line: The instruction.
        shapes_of: Shapes by name, of its computation.
        fused: The computation that is fused into it, if one is.
    """
    given = [shapes_of.get(name, "") for name in line.operands]
    if line.opcode in _TAKES:
        return 2 * _stored(line.shape) + sum(map(_stored, given[1:]))
    if line.opcode in _PUTS and len(given) > _PUTS[line.opcode]:
        part = _stored(given[_PUTS[line.opcode]])
        # A scatter also reads the rows that it changes, and where they are.
        return 3 * part + _stored(given[1]) if line.opcode == "scatter" else 2 * part
    if line.opcode in _NAMES_BOTH and line.shape.startswith("(") and not fused:
        return _stored(line.shape)
    if not fused:
        return _stored(line.shape) + sum(map(_stored, given))
    return _read(fused, given) + _written(line.shape, fused)


def _stored(shape: str) -> int:
    return shapes.padded(shape, space=0)


def _read(fused: Sequence[Line], given: Sequence[str]) -> int:
    """Of each operand what the fused instructions take of it."""
    users: dict[str, list[Line]] = {}
    for one in fused:
        for name in one.operands:
            users.setdefault(name, []).append(one)
    parameters = {one.number: one for one in fused if one.opcode == "parameter"}
    total = 0
    for number, shape in enumerate(given):
        whole = _stored(shape)
        parameter = parameters.get(number)
        parts = None if parameter is None else _parts(parameter.name, users)
        total += whole if parts is None else min(whole, parts)
    return total


def _parts(name: str, users: Mapping[str, list[Line]]) -> int | None:
    """Bytes that are taken of a value by those that take parts of it; None if any takes all."""
    total = 0
    for user in users.get(name, ()):
        first = user.operands[0] == name and name not in user.operands[1:]
        if user.opcode == "bitcast":
            inside = _parts(user.name, users)
            if inside is None:
                return None
            total += inside
        elif user.opcode in _TAKES and first:
            total += shapes.padded(user.shape)
        elif not (user.opcode in _PUTS and first):
            return None
    return total


def _written(shape: str, fused: Sequence[Line]) -> int:
    """Of the result what the fused instructions write of it."""
    known = {one.name: one for one in fused}
    root = next((one for one in fused if one.root), None)
    if root is None:
        return _stored(shape)
    pieces = [root.name] if root.opcode != "tuple" else list(root.operands)
    results = shapes.arrays(shape)
    if len(results) != len(pieces):
        return _stored(shape)
    total = 0
    for array, name in zip(results, pieces, strict=True):
        whole = array.padded if array.space == 0 else 0
        made = known.get(name)
        while made is not None and made.opcode in _SAME and len(made.operands) == 1:
            made = known.get(made.operands[0])
        part = _PUTS.get(made.opcode) if made is not None else None
        if made is None or part is None or len(made.operands) <= part:
            total += whole
            continue
        update = known.get(made.operands[part])
        total += whole if update is None else min(whole, shapes.padded(update.shape))
    return total
