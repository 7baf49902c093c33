"""What a change to a program gained: two runs compared, and whether the change may stay."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.results import Report

#: "loss 0.1234", "train_loss: 1e-3", "Loss = 2.5": a number with a point or an exponent, so that
#: epoch and step counters are not taken for one.
_LOSS = re.compile(
    r"loss(?:es)?\b[^0-9\n+-]{0,24}([-+]?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf))",
    re.IGNORECASE,
)
#: How far two printed losses may lie apart, relative to the larger: they are rounded when printed,
#: and adding up in another order moves the last digits.
TOLERANCE = 0.01
#: A step may take so many times and so many seconds longer before that counts as worse: the times
#: of one short run on a shared machine say no more.
SLOWER = 1.5
SLOWER_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """What one run showed; None where it was not measured.

    Attributes:
        ran: Whether the program ended with exit code 0.
        compilations: New graphs of one core.
        after_warmup: Those after warm-up.
        syncs: Host waits per step of one core.
        fallbacks: Operations run on the CPU per step of one core.
        step_seconds: Median step, mean over the cores.
        steps: Optimizer steps of one core.
        losses: The losses that it printed, in order, each once.
        failed: Why it failed, in one sentence; "" if it ran.
    """

    ran: bool
    compilations: int | None = None
    after_warmup: int | None = None
    syncs: float | None = None
    fallbacks: float | None = None
    step_seconds: float | None = None
    steps: int | None = None
    losses: tuple[float, ...] = ()
    failed: str = ""


def measured(report: Report, *, ran: bool, output: str) -> Measured:
    """The figures of a run.

    Args:
        report: What was recorded.
        ran: Whether the program ended well.
        output: What it printed, for its losses.
    """
    summary = report.summary
    core_steps = (summary.steps or 0) * (summary.cores or 0)
    medians = [core.step_seconds_median for core in report.cores]
    known = [value for value in medians if value is not None]
    fallbacks = None if summary.fallbacks is None else sum(summary.fallbacks.values())
    return Measured(
        ran,
        summary.compilations,
        summary.compilations_after_warmup,
        None if summary.host_syncs is None or not core_steps else summary.host_syncs / core_steps,
        None if fallbacks is None or not core_steps else fallbacks / core_steps,
        sum(known) / len(known) if known else None,
        summary.steps,
        losses(output),
        "" if ran else _why(report),
    )


def losses(output: str) -> tuple[float, ...]:
    """The losses in a program's output: each number once, as all cores may print the same."""
    return tuple(dict.fromkeys(float(match) for match in _LOSS.findall(output)))


def agreement(before: Measured, after: Measured) -> tuple[int, int] | None:
    """How many of the losses printed after a change were printed before it as well.

    Returns:
        (those that agree within :data:`TOLERANCE`, all); None if one of the runs printed none.
    """
    if not before.losses or not after.losses:
        return None
    near = [any(_near(value, old) for old in before.losses) for value in after.losses]
    return sum(near), len(near)


def worse(before: Measured, after: Measured, *, keeps_numbers: bool) -> str | None:
    """Why a change must not stay, None if it may.

    Args:
        before: The run without it.
        after: The run with it.
        keeps_numbers: Whether the change is meant to leave the losses as they are.
    """
    if not before.ran:
        return None  # it cannot be worse than a program that fails
    if not after.ran:
        return f"the program fails with it ({after.failed})"
    for name, digits in (("after_warmup", 0), ("syncs", 1), ("fallbacks", 1)):
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and new is not None and new > old * 1.05 + 0.01:
            words = {"after_warmup": "compilations after warm-up"}.get(name, f"{name} per step")
            return f"more {words}: {new:.{digits}f} instead of {old:.{digits}f}"
    if before.step_seconds and after.step_seconds:
        ratio = after.step_seconds / before.step_seconds
        longer = after.step_seconds - before.step_seconds
        if ratio > SLOWER and longer > SLOWER_SECONDS and not _fewer(before, after):
            return f"a step takes {ratio:.1f} times as long"
    same = agreement(before, after)
    if keeps_numbers and same is not None and same[0] < same[1]:
        return f"only {same[0]} of {same[1]} printed losses are as before"
    return None


def _fewer(before: Measured, after: Measured) -> bool:
    """Whether a count went down: counts can be trusted where times cannot."""
    pairs = [
        (getattr(before, name), getattr(after, name))
        for name in ("compilations", "after_warmup", "syncs", "fallbacks")
    ]
    return any(old is not None and new is not None and new < old * 0.95 for old, new in pairs)


def _near(one: float, other: float) -> bool:
    if one != one or other != other:
        return one != one and other != other  # both are "not a number"
    return one == other or abs(one - other) <= TOLERANCE * max(abs(one), abs(other))


def _why(report: Report) -> str:
    failures: Sequence[str] = [
        item.message for item in report.findings if item.code in {"XLA411", "XLA413"}
    ]
    return failures[0] if failures else report.summary.verdict
