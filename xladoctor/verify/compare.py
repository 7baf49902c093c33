"""Where two ways of a program part.

How much is too much is measured, not guessed: one way is run once more with weights that are
changed by a rounding error each, at the start and after each step. What that does to a tensor by a
step is what rounding may do to it. Two ways round at every operation, so they may differ by
:data:`MARGIN` times as much.

Changed weights do not change the order of sums. In another order a sum of n numbers differs by
about the square root of n rounding errors, and by a few times that if they are alike and their sum
is small. So what is below :data:`FLOOR` rounding errors of the largest value never counts, nor what
is below :data:`OF_SUMS` times the square root of the most that a gradient can be a sum of.

One run does not show the corners: where a ReLU's input or an absolute value is next to zero, one
rounding error decides which way the gradient goes. So what seems to part is held against further
runs (:func:`widened`), changed by :data:`MARGIN` rounding errors with other signs each.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from xladoctor.verify.records import BAD, KINDS, LARGEST, MISSING, NORM, SAMPLES, SUMS
from xladoctor.verify.result import Divergence

if TYPE_CHECKING:
    import array
    from collections.abc import Iterator, Sequence

    from xladoctor.verify.records import Record, Step

#: Distance to the next larger number after 1, by type.
ROUNDING = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
#: How many times what rounding did to one way two ways may differ.
MARGIN = 16.0
#: How many times what those changes did to a run two ways may differ.
MARGIN_AT_CORNERS = 2.0
#: Rounding errors of the largest value that never count; of types with less than 32 bits.
FLOOR, FLOOR_NARROW = 128.0, 4.0
#: Times the square root of the addends. Sums of very many are made in blocks: no more than DEEPEST.
OF_SUMS, DEEPEST = 4.0, 2**22
#: What rounding must do to a gradient, and did not before, to have turned a part of it round.
CORNER = 1e-3
#: What is made of gradients and nothing else.
_OF_GRADIENTS = ("gradient", "state")
#: A tensor of which rounding may change more is rounding itself: its difference tells nothing.
TELLING = 1e-2
#: Cores run the same update on the same numbers: they may differ by so much of the largest value.
BETWEEN_CORES = 1e-6


@dataclasses.dataclass(slots=True)
class Tolerances:
    """What rounding may do, by step, kind and tensor.

    Attributes:
        floor: The least of it.
        noise: The differences between one way and the same with rounding errors added.
        known: The last step for which it was measured; None if it was not.
        corner: The step after which no gradient tells anything: at it, rounding alone turned one
            round, and with it the weights of all later steps.
    """

    floor: float
    noise: dict[tuple[int, str, int], float] = dataclasses.field(default_factory=dict)
    known: int | None = None
    corner: int | None = None

    def of(self, step: int, kind: str, at: int) -> float:
        """The largest relative difference that counts as equal."""
        if self.corner is not None and step > self.corner and kind in _OF_GRADIENTS:
            return math.inf
        return self.floor + MARGIN * self.noise.get((step, kind, at), 0.0)


def tolerances(plain: Record, rounded: Record) -> Tolerances:
    """Measure what rounding may do.

    Args:
        plain: One way.
        rounded: The same, with rounding errors added.
    """
    result = Tolerances(floor_of(plain.steps))
    worst: dict[tuple[str, int, int], float] = {}
    for mine, theirs in zip(plain.steps, rounded.steps, strict=False):
        result.known = mine.number
        for kind, at, distance in differences(mine, theirs):
            # What has grown once may be as large again: it is a matter of chance.
            key = (kind, mine.optimizer, at)
            worst[key] = max(worst.get(key, 0.0), distance if math.isfinite(distance) else 0.0)
            result.noise[mine.number, kind, at] = worst[key]
    return result


def widened(tolerance: Tolerances, plain: Record, changed: Record) -> Tolerances:
    """What rounding may do, with what it did at corners, from there on.

    Args:
        tolerance: As known so far.
        plain: One way.
        changed: The same, with weights changed by :data:`MARGIN` rounding errors.
    """
    result = dataclasses.replace(tolerance, noise=dict(tolerance.noise))
    for mine, theirs in zip(plain.steps, changed.steps, strict=False):
        for kind, at, distance in differences(mine, theirs):
            if not math.isfinite(distance):
                continue
            if kind == "gradient" and distance > max(CORNER, result.of(mine.number, kind, at)):
                result.corner = min(mine.number, result.corner or mine.number)
            # Behind a corner the changes no longer add up: twice of what is seen is not enough.
            behind = result.corner is not None and mine.number > result.corner
            allowed = distance if behind else distance * MARGIN_AT_CORNERS / MARGIN
            # What one corner did at one step, another may do at the next.
            for step in plain.steps:
                if step.optimizer == mine.optimizer and step.number >= mine.number:
                    key = (step.number, kind, at)
                    result.noise[key] = max(result.noise.get(key, 0.0), allowed)
    return result


def floor_of(steps: Sequence[Step]) -> float:
    """The difference that never counts, for the types that the program computes with."""
    used = {dtype for step in steps for dtype in (*step.dtypes, step.narrow) if dtype}
    narrow = [ROUNDING[one] for one in used if ROUNDING.get(one, 0.0) > ROUNDING["float32"]]
    if narrow:
        return FLOOR_NARROW * max(narrow)
    addends = min(DEEPEST, max((step.addends for step in steps), default=0))
    return max(FLOOR, OF_SUMS * math.sqrt(addends)) * ROUNDING["float32"]


def rounding_of(steps: Sequence[Step]) -> float:
    """The rounding error to measure with: of the narrowest type that is computed with."""
    used = {dtype for step in steps for dtype in (*step.dtypes, step.narrow) if dtype}
    return max((ROUNDING[one] for one in used if one in ROUNDING), default=ROUNDING["float32"])


def part(left: Record, right: Record, tolerance: Tolerances) -> tuple[Divergence | None, float]:
    """Where ``right`` parts from ``left``, or its cores from each other.

    Returns:
        The first place, and the largest difference of what counts as equal before it.
    """
    largest = 0.0
    mates = [steps for core, steps in right.cores.items() if core != min(right.cores)]
    for at, (mine, theirs) in enumerate(zip(left.steps, right.steps, strict=False)):
        if tolerance.known is not None and mine.number > tolerance.known:
            break  # what rounding does there is not known
        others = [steps[at] for steps in mates if at < len(steps)]
        found, distance = _step(mine, theirs, others, tolerance)
        if found is not None:
            kind, number, distance = found
            name = mine.names[kind][number] if kind in mine.names else ""
            return _divergence(
                mine, theirs, kind, name, distance, tolerance, number, left, right
            ), largest
        found_core = _between_cores(theirs, others)
        if found_core is not None:
            name, distance, which = found_core
            cores = tuple(core for core in right.cores if core != min(right.cores))
            return (
                Divergence(
                    step=theirs.number,
                    way=right.way,
                    other=right.way,
                    what="parameter",
                    name=name,
                    location=theirs.place,
                    difference=distance,
                    tolerance=BETWEEN_CORES,
                    cores=(cores[which],),
                ),
                largest,
            )
        largest = max(largest, distance)
    return None, largest


def _divergence(
    mine: Step,
    theirs: Step,
    kind: str,
    name: str,
    distance: float,
    tolerance: Tolerances,
    number: int,
    left: Record,
    right: Record,
) -> Divergence:
    return Divergence(
        step=mine.number,
        way=right.way,
        other=left.way,
        what=kind,
        name=name,
        location=theirs.backward if kind in ("loss", "gradient") else theirs.place,
        difference=distance if math.isfinite(distance) else None,
        tolerance=tolerance.of(mine.number, kind, number),
    )


def _step(
    mine: Step, theirs: Step, others: Sequence[Step], tolerance: Tolerances
) -> tuple[tuple[str, int, float] | None, float]:
    """The first kind that differs in one step, its worst tensor and how far; the largest else."""
    largest = 0.0
    distance = _of_losses(mine, [theirs, *others])
    if distance is not None:
        if distance > tolerance.of(mine.number, "loss", 0):
            return ("loss", 0, distance), largest
        largest = max(largest, distance)
    worst: dict[str, tuple[float, int, float]] = {}
    for kind, at, apart in differences(mine, theirs):
        if kind == "loss":
            continue
        allowed = tolerance.of(mine.number, kind, at)
        if apart > allowed:
            worst[kind] = max(worst.get(kind, (0.0, 0, 0.0)), (apart / allowed, at, apart))
        elif allowed < TELLING:
            largest = max(largest, apart)
    for kind in KINDS:
        if kind in worst:
            _, at, apart = worst[kind]
            return (kind, at, apart), largest
    return None, largest


def _of_losses(mine: Step, theirs: Sequence[Step]) -> float | None:
    """How far the loss of one way is from the mean over the cores of the other; None if unknown."""
    if not mine.losses or any(len(one.losses) != len(mine.losses) for one in theirs):
        return None
    worst = 0.0
    for at, loss in enumerate(mine.losses):
        mean = sum(one.losses[at] for one in theirs) / len(theirs)
        worst = max(worst, apart(loss, mean, max(abs(loss), abs(mean))))
    return worst


def _between_cores(first: Step, others: Sequence[Step]) -> tuple[str, float, int] | None:
    """The first parameter of which another core has another value; name, distance, which core."""
    mine = first.sketches.get("parameter", ())
    for which, other in enumerate(others):
        theirs = other.sketches.get("parameter", ())
        if not mine or len(theirs) != len(mine):
            continue  # of a step behind which another one of the optimizer stands in the graph
        for name, one, two in zip(first.names["parameter"], mine, theirs, strict=True):
            distance = difference(one, two)
            if distance > BETWEEN_CORES:
                return name, distance, which
    return None


def differences(mine: Step, theirs: Step) -> Iterator[tuple[str, int, float]]:
    """All that both have: kind, which tensor, how far apart relative to the largest value."""
    distance = _of_losses(mine, [theirs])
    if distance is not None:
        yield "loss", 0, distance
    for kind in KINDS:
        ours, others = mine.sketches.get(kind), theirs.sketches.get(kind)
        if ours is None or others is None or len(ours) != len(others):
            continue
        for at, (one, two) in enumerate(zip(ours, others, strict=True)):
            yield kind, at, difference(one, two)


def difference(one: array.array[float], two: array.array[float]) -> float:
    """How far two sketches are apart, relative to the largest value; infinite if one is no number.

    A tensor that is missing on one side only is equal to zeros: an optimizer leaves both alone.
    """
    bad_one, bad_two = max(one[BAD], 0.0), max(two[BAD], 0.0)
    if bad_one != bad_two:
        return math.inf
    if MISSING in (one[BAD], two[BAD]) and one[NORM] == two[NORM] == 0.0:
        return 0.0
    largest = max(one[LARGEST], two[LARGEST])
    norm = max(one[NORM], two[NORM])
    if not norm:
        return 0.0
    apart_at_samples = max(abs(a - b) for a, b in zip(one[SAMPLES:], two[SAMPLES:], strict=True))
    sums = max(abs(a - b) for a, b in zip(one[SUMS:SAMPLES], two[SUMS:SAMPLES], strict=True))
    return max(apart_at_samples / largest, sums / norm, abs(one[NORM] - two[NORM]) / norm)


def apart(one: float, two: float, scale: float) -> float:
    """How far two numbers are apart; equal if both are no numbers."""
    if math.isnan(one) or math.isnan(two):
        return 0.0 if math.isnan(one) and math.isnan(two) else math.inf
    if one == two:
        return 0.0
    return abs(one - two) / scale if scale and math.isfinite(scale) else math.inf
