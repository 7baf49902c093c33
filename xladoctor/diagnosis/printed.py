"""The losses that a program prints: finding them, and holding those of two runs together."""

from __future__ import annotations

import bisect
import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from xladoctor.changes import Agreement, Disagreement, Loss

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

#: "loss 0.1234", "train_loss: 1e-3", "Loss = 2.5": a number with a point or an exponent, so that
#: epoch and step counters are not taken for one.
_LOSS = re.compile(
    r"(?P<label>\b(?:[a-z][\w-]* )?[\w/-]*loss(?:es)?)\b[^0-9\n+-]{0,24}?"
    r"(?P<number>[-+]?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|\bnan\b|\binf\b))",
    re.IGNORECASE,
)
#: What printing a tensor puts around its number; the device's index is no part of the message.
_TENSOR = re.compile(r"tensor\(\s*([^\s,)]+)[^)]*\)")
#: Durations and clocks ("00:01", "took 12", "rate=7"), which no two runs share.
_CLOCK = re.compile(
    r"\d+:\d\d(?::\d\d)?|\b(?:time|rate|took|elapsed|eta)\b\W{0,3}\d+", re.IGNORECASE
)
_WHOLE = re.compile(r"(?<![\w.])\d+(?![\w.])")
#: How far two printed losses may lie apart, relative to the larger: adding up in another order
#: moves the last digits, and training enlarges that.
TOLERANCE = 0.01


def losses(output: str) -> tuple[Loss, ...]:
    """The losses in a program's output, in the order in which they were printed."""
    found = []
    for row, line in enumerate(_TENSOR.sub(r"\1", output).splitlines(), 1):
        for match in _LOSS.finditer(line):
            others = line[: match.start("number")] + " " + line[match.end("number") :]
            numbers = ",".join(_WHOLE.findall(_CLOCK.sub("", others)))
            label = match["label"].lower() + (f" ({numbers})" if numbers else "")
            found.append(Loss(label, float(match["number"]), _digit(match["number"]), row))
    return tuple(found)


def agreement(
    before: Sequence[Loss], after: Sequence[Loss], unsteady: Collection[str] = ()
) -> Agreement | None:
    """Hold the losses printed after a change against those printed before it.

    Cores print in no fixed order, so a loss agrees if it is near one that was printed before under
    the same label; where both printed equally many, each counterpart is used once.

    Args:
        before: Printed without the change.
        after: Printed with it.
        unsteady: Labels whose losses differ between two runs of one program.

    Returns:
        None if one of the two printed none that has a counterpart and is steady.
    """
    old, new = _by_label(before), _by_label(after)
    compared = agreeing = left_out = unmatched = 0
    wrong: list[tuple[Loss, Loss]] = []
    for label, items in new.items():
        if label not in old:
            unmatched += len(items)
        elif label in unsteady:
            left_out += len(items)
        else:
            compared += len(items)
            pairs = _apart(old[label], items)
            agreeing += len(items) - len(pairs)
            wrong += pairs
    if not compared and not left_out:
        return None
    first = min(wrong, key=lambda pair: pair[1].row, default=None)
    shown = first and Disagreement(first[1].label, first[0].value, first[1].value, first[1].row)
    return Agreement(compared, agreeing, left_out, unmatched, shown, TOLERANCE)


def unsteady(one: Sequence[Loss], other: Sequence[Loss]) -> frozenset[str]:
    """Labels whose losses differ between two runs of one program."""
    first, second = _by_label(one), _by_label(other)
    return frozenset(
        label
        for label in first.keys() & second.keys()
        if _apart(first[label], second[label]) or _apart(second[label], first[label])
    )


def near(one: Loss, other: Loss) -> bool:
    """Whether two losses may be one number: to :data:`TOLERANCE`, or to the last digit printed."""
    a, b = one.value, other.value
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if math.isinf(a) or math.isinf(b):
        return a == b
    room = max(TOLERANCE * max(abs(a), abs(b)), one.digit, other.digit)
    return abs(a - b) <= room * (1 + 1e-9)


def _apart(before: Sequence[Loss], after: Sequence[Loss]) -> list[tuple[Loss, Loss]]:
    """Losses of one label that have no counterpart, each with the one that comes closest."""
    if len(before) == len(after):
        # Sorted, so that each has a counterpart of its own; nan has no order and goes last.
        pairs = zip(sorted(before, key=_order), sorted(after, key=_order), strict=True)
        return [(old, new) for old, new in pairs if not near(old, new)]
    known = sorted((loss for loss in before if not math.isnan(loss.value)), key=_order)
    values = [loss.value for loss in known]
    wrong = []
    for new in after:
        place = bisect.bisect(values, new.value)
        # The closest are the neighbours; nan is not in order and has only its like.
        closest = known[max(0, place - 1) : place + 1] or known[-1:]
        same = before if math.isnan(new.value) else closest
        if not any(near(old, new) for old in same):
            wrong.append((min(closest or before, key=lambda old: _distance(old, new)), new))
    return wrong


def _order(loss: Loss) -> tuple[bool, float]:
    nan = math.isnan(loss.value)
    return (nan, 0.0 if nan else loss.value)


def _distance(one: Loss, other: Loss) -> float:
    distance = abs(one.value - other.value)
    return math.inf if math.isnan(distance) else distance


def _by_label(found: Sequence[Loss]) -> Mapping[str, list[Loss]]:
    out: dict[str, list[Loss]] = defaultdict(list)
    for loss in found:
        out[loss.label].append(loss)
    return out


def _digit(text: str) -> float:
    mantissa, _, exponent = text.lower().lstrip("+-").partition("e")
    if not mantissa[:1].isdigit():
        return 0.0
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
