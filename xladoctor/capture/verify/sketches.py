"""Tensors as a few numbers each, so that models of any size can be compared step by step."""

from __future__ import annotations

import array
import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Values taken at equal distances, and sums with fixed random signs.
SAMPLES, SUMS = 16, 4
#: Numbers of one sketch: norm, largest value, how many are no number, sums, samples.
SIZE = 3 + SUMS + SAMPLES
#: In the place of how many are no number: there is no tensor.
MISSING = -1.0
#: Elements whose signs are drawn at once.
_SIGNS = 1 << 16

_signs: list[Any] = []


def sketch(tensor: Any) -> array.array[float]:
    """The numbers of one tensor.

    Args:
        tensor: On the host, of any shape and type; None for one that is not there.
    """
    import torch

    if tensor is None:
        return array.array("d", [0.0, 0.0, MISSING] + [0.0] * (SUMS + SAMPLES))
    with torch.no_grad():
        values = tensor.detach().reshape(-1)
        values = (values.abs() if values.is_complex() else values).to(torch.float64)
        bad = ~torch.isfinite(values)
        count = float(bad.sum())
        if count:
            values = values.masked_fill(bad, 0.0)
        if not values.numel():
            return array.array("d", [0.0] * SIZE)
        at = torch.linspace(0, values.numel() - 1, min(SAMPLES, values.numel())).long()
        samples = values[at].tolist()
        samples += [0.0] * (SAMPLES - len(samples))
        head = [float(values.norm()), float(values.abs().max()), count]
        return array.array("d", head + _sums(values) + samples)


def _sums(values: Any) -> list[float]:
    """Sums with signs that depend on the place alone; blocks are weighted, so none cancel."""
    import torch

    if not _signs:
        places = torch.arange(SUMS * _SIGNS, dtype=torch.int64).reshape(SUMS, _SIGNS)
        _signs.append((hashed(places) % 2 * 2 - 1).to(torch.float64))
    total = torch.zeros(SUMS, dtype=torch.float64)
    for number, part in enumerate(values.split(_SIGNS)):
        total += (_signs[0][:, : part.numel()] @ part) * (1.0 + 0.001 * (number % 97))
    return [float(one) for one in total]


def hashed(numbers: Any) -> Any:
    """Whole numbers as others that look random, without any generator; 31 bits."""
    for _ in range(3):
        numbers = (numbers ^ (numbers >> 15)) * 2246822519 & 0xFFFFFFFF
    return (numbers ^ (numbers >> 13)) >> 1


def packed(tensors: Sequence[Any]) -> str:
    """The sketches of several tensors as text."""
    numbers = array.array("d")
    for tensor in tensors:
        numbers.extend(sketch(tensor))
    return base64.b64encode(numbers.tobytes()).decode("ascii")
