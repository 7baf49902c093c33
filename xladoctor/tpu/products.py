"""Floating point operations of matrix products and convolutions, counted from their shapes.

XLA's own analysis counts a whole graph; where the operations are is only known by counting each.
A product is counted as XLA does: two for each multiplication, those with padding and with the gaps
of a dilated input left out. ``tests/tpu/test_products_xla.py`` holds the counts to XLA's.
"""

from __future__ import annotations

import functools
import math
import re
from typing import TYPE_CHECKING

from xladoctor.tpu import shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"window=\{([^}]*)\}")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_GROUPS = re.compile(r"batch_group_count=(\d+)")


def flops(opcode: str, shape: str, operands: Sequence[str], rest: str) -> float:
    """Floating point operations of one instruction; 0 if it is no product, or cannot be read.

    Args:
        opcode: "convolution" or "dot".
        shape: Of the result.
        operands: Shapes of both factors.
        rest: What is printed behind the operands.
    """
    arrays = [shapes.arrays(text) for text in (shape, *operands[:2])]
    if len(arrays) < 3 or not all(arrays):
        return 0.0
    out, left, right = (found[0].sizes for found in arrays)
    if opcode == "dot":
        contracted = _CONTRACTED.search(rest)
        inner = [left[int(one)] for one in contracted[1].split(",") if one] if contracted else []
        return 2.0 * math.prod(out) * math.prod(inner)
    labels = _LABELS.search(rest)
    if opcode != "convolution" or labels is None:
        return 0.0
    return _convolution(out, left, right, (labels[1], labels[2], labels[3]), rest)


def _convolution(
    out: tuple[int, ...],
    left: tuple[int, ...],
    right: tuple[int, ...],
    labels: tuple[str, str, str],
    rest: str,
) -> float:
    written = _WINDOW.search(rest)
    window = dict(part.split("=") for part in written[1].split()) if written else {}
    dimensions = sum(label.isdigit() for label in labels[1])

    def each(name: str, default: str) -> list[int]:
        values = window[name].split("x") if name in window else [default] * dimensions
        return [int(value.partition("_")[0]) for value in values]

    strides, pads = each("stride", "1"), each("pad", "0")
    gaps, spreads = each("lhs_dilate", "1"), each("rhs_dilate", "1")
    places = 1
    for at in range(dimensions):
        sizes = (left[labels[0].index(str(at))], right[labels[1].index(str(at))])
        end = out[labels[2].index(str(at))]
        places *= _places(*sizes, end, strides[at], pads[at], gaps[at], spreads[at])
    groups = _GROUPS.search(rest)
    inner = right[labels[1].index("i")]
    around = out[labels[2].index("b")] * out[labels[2].index("f")]
    return 2.0 * around * inner * places / (int(groups[1]) if groups else 1)


@functools.lru_cache(maxsize=4096)
def _places(
    size: int, window: int, out: int, stride: int, before: int, gaps: int, spread: int
) -> int:
    """Pairs of an output and an element of the window that meet an element of the input.

    Args:
        size: Elements of the input.
        window: Elements of the window.
        out: Elements of the output.
        stride: Between two outputs.
        before: Padding in front.
        gaps: Of the input's elements, one in so many places (1: they touch).
        spread: The same of the window's.
    """
    reach = (size - 1) * gaps + 1
    return sum(
        0 <= at * stride + element * spread - before < reach
        and (at * stride + element * spread - before) % gaps == 0
        for at in range(out)
        for element in range(window)
    )
