"""What changed between two runs: the figures that are compared, and what counts as a change.

``compare`` and ``treat`` both ask here, so that a gain means the same in both.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING

from xladoctor.changes import Change, Figures, Spread
from xladoctor.diagnosis.thresholds import WARMUP_EXECUTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.results import Report

#: Two counts per step that differ by less are equal: they are quotients of whole numbers.
_ROUNDING = 1e-9


def figures(report: Report) -> Figures:
    """The figures of a run, or of pasted reports."""
    summary = report.summary
    steps = (summary.steps or 0) * (summary.cores or 1)
    fallbacks = None if summary.fallbacks is None else sum(summary.fallbacks.values())
    return Figures(
        compilations=summary.compilations,
        after_warmup=summary.compilations_after_warmup,
        syncs=_rate(summary.host_syncs, steps),
        fallbacks=_rate(fallbacks, steps),
        per_step=bool(steps),
        step=_settled(report),
        steps=summary.steps,
        cores=summary.cores,
        on_tpu={
            cost.target: (
                None if cost.step.device_seconds is None else cost.step.device_seconds * 1e6,
                cost.step.memory_bytes,
            )
            for cost in report.tpu or ()
        },
    )


def changes(before: Figures, after: Figures) -> tuple[Change, ...]:
    """The figures of two runs side by side; counts per step only if both have steps."""
    per_step = before.per_step and after.per_step
    each = " per step" if per_step else ""
    pairs: list[tuple[str, str, float | None, float | None]] = [
        ("compilations", "compilations per core", before.compilations, after.compilations),
        (
            "compilations_after_warmup", "compilations after warm-up",
            before.after_warmup, after.after_warmup,
        ),
    ]  # fmt: skip
    if before.per_step == after.per_step:
        pairs += [
            ("host_syncs", f"host syncs{each}", before.syncs, after.syncs),
            ("fallbacks", f"CPU fallbacks{each}", before.fallbacks, after.fallbacks),
        ]
    else:  # a number per step cannot be held against a sum
        pairs += [
            ("host_syncs", "host syncs per step", *_only_per_step(before, after, "syncs")),
            ("fallbacks", "CPU fallbacks per step", *_only_per_step(before, after, "fallbacks")),
        ]
    found = [_change(name, title, "", one, other) for name, title, one, other in pairs]
    return (*found, _step_change(before.step, after.step), *_on_tpu(before, after))


def _on_tpu(before: Figures, after: Figures) -> Iterator[Change]:
    """Device time and memory on the targets that both were held against."""
    for target in before.on_tpu:
        if target in after.on_tpu:
            (old_time, old_bytes), (new_time, new_bytes) = (
                before.on_tpu[target],
                after.on_tpu[target],
            )
            title = f"device time of a step on {target}"
            yield _change(f"tpu_step:{target}", title, "us", old_time, new_time)
            title = f"memory of a core of {target}"
            yield _change(f"tpu_memory:{target}", title, "B", old_bytes, new_bytes)


def percent(before: float | None, after: float | None) -> float | None:
    """By how many percent a number grew; None if it was 0 or is not known."""
    if before is None or after is None or before == 0:
        return None
    return (after - before) / before * 100


def _rate(count: int | None, steps: int) -> float | None:
    if count is None:
        return None
    return count / steps if steps else float(count)


def _settled(report: Report) -> Spread | None:
    found = spread([t for steps in report.steps.values() for t in steps[WARMUP_EXECUTIONS:]])
    medians = sorted(
        core.step_seconds_median for core in report.cores if core.step_seconds_median is not None
    )
    if found is None or not medians:
        return found
    # The same "typical" as in every report: of the core in the middle.
    return dataclasses.replace(found, median=medians[len(medians) // 2])


def spread(seconds: Sequence[float]) -> Spread | None:
    """Median and quartiles; None of nothing."""
    if not seconds:
        return None
    if len(seconds) == 1:
        return Spread(seconds[0], seconds[0], seconds[0], 1)
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Spread(median, low, high, len(seconds))


def _only_per_step(before: Figures, after: Figures, name: str) -> tuple[float | None, float | None]:
    one = getattr(before, name) if before.per_step else None
    other = getattr(after, name) if after.per_step else None
    return one, other


def _change(
    name: str, title: str, unit: str, before: float | None, after: float | None, noise: str = ""
) -> Change:
    if before is None or after is None:
        return Change(name, title, unit, before, after, "unknown")
    if abs(after - before) <= _ROUNDING or noise:
        verdict = "same"
    else:
        verdict = "better" if after < before else "worse"
    return Change(name, title, unit, before, after, verdict, percent(before, after), noise)


def _step_change(before: Spread | None, after: Spread | None) -> Change:
    noise = ""
    if before is not None and after is not None:
        if min(before.count, after.count) < 4:  # quartiles of fewer say nothing
            noise = "too few steps after warm-up to tell"
        elif before.low <= after.high and after.low <= before.high:
            noise = "the interquartile ranges of the steps overlap"
    return _change(
        "step_seconds",
        "typical step",
        "s",
        None if before is None else before.median,
        None if after is None else after.median,
        noise,
    )
