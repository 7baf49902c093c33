"""The limits that a run must keep to for CI: from options and from a budget file."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from xladoctor.changes import Gate
from xladoctor.cli import sizes
from xladoctor.costs import StepCost
from xladoctor.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xladoctor.results import Report


@dataclasses.dataclass(frozen=True, slots=True)
class Gates:
    """Limits; None (or False) where there is none.

    Attributes:
        max_compilations: New graphs of one core.
        max_compilations_after_step: (step, number): new graphs of one core in later steps.
        forbid_fallbacks: No operation may run on the CPU.
        max_syncs_per_step: Host syncs of one core, per step.
        max_tpu_step_ms: Milliseconds of device time of the typical step on each target.
        max_hbm: Bytes of device memory that the typical step needs on each target.
    """

    max_compilations: int | None = None
    max_compilations_after_step: tuple[int, int] | None = None
    forbid_fallbacks: bool = False
    max_syncs_per_step: float | None = None
    max_tpu_step_ms: float | None = None
    max_hbm: int | None = None

    def __bool__(self) -> bool:
        return self != Gates()

    def override(self, other: Gates) -> Gates:
        """These limits, replaced by those that ``other`` has."""
        changed = {
            field.name: getattr(other, field.name)
            for field in dataclasses.fields(other)
            if getattr(other, field.name) not in (None, False)
        }
        return dataclasses.replace(self, **changed)


def read_budget(path: Path) -> Gates:
    """Read a budget file (TOML): the options' names without the dashes in front.

    Raises:
        UsageError: It cannot be read, or says something that is no limit.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the budget {path} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the budget {path} is not TOML: {error}") from error
    known = {field.name.replace("_", "-"): field.name for field in dataclasses.fields(Gates)}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        name = known.get(key.replace("_", "-"))
        if name is None:
            raise UsageError(f"{path}: {key} is not a limit; there are {', '.join(sorted(known))}")
        values[name] = _checked(path, key, name, value)
    return Gates(**values)


def _checked(path: Path, key: str, name: str, value: Any) -> Any:
    def number(item: Any, *, whole: bool = True) -> bool:
        kinds = int if whole else (int, float)
        return isinstance(item, kinds) and not isinstance(item, bool) and item >= 0

    if name == "forbid_fallbacks":
        if isinstance(value, bool):
            return value
        raise UsageError(f"{path}: {key} must be true or false")
    if name == "max_compilations_after_step":
        if isinstance(value, list) and len(value) == 2 and all(number(item) for item in value):
            return tuple(value)
        raise UsageError(f"{path}: {key} must be [step, number], for example [3, 0]")
    if name == "max_hbm" and isinstance(value, str):
        return sizes.parse(value, f"{path}: {key}")
    if name in ("max_syncs_per_step", "max_tpu_step_ms"):
        if number(value, whole=False):
            return float(value)
        raise UsageError(f"{path}: {key} must be a number, 0 or more")
    if number(value):
        return value
    raise UsageError(f"{path}: {key} must be a whole number, 0 or more")


def judge(gates: Gates, report: Report) -> Gate:
    """Hold a run against its limits. What was not measured is never taken for 0."""
    broken: list[str] = []
    unknown: list[str] = []

    def check(option: str, what: str, measured: float | None, limit: float) -> None:
        if measured is None:
            unknown.append(f"{option}: {what} could not be measured")
        elif measured > limit:
            broken.append(f"{option}: {_figure(measured)} {what}, at most {_figure(limit)} allowed")

    summary = report.summary
    if gates.max_compilations is not None:
        check("--max-compilations", "compilations", summary.compilations, gates.max_compilations)
    if gates.max_compilations_after_step is not None:
        step, limit = gates.max_compilations_after_step
        later = None if summary.compilations is None else _compilations_after(report, step)
        check("--max-compilations-after-step", f"compilations after step {step}", later, limit)
    if gates.forbid_fallbacks:
        total = None if summary.fallbacks is None else sum(summary.fallbacks.values())
        check("--forbid-fallbacks", "operations run on the CPU", total, 0)
    if gates.max_syncs_per_step is not None:
        check(
            "--max-syncs-per-step",
            "host syncs per step and core",
            report.summary.syncs_per_step,
            gates.max_syncs_per_step,
        )
    for option, what, used, most in _on_tpu(gates, report):
        check(option, what, used, most)
    return Gate(tuple(broken), tuple(unknown))


def _on_tpu(gates: Gates, report: Report) -> Iterator[tuple[str, str, float | None, float]]:
    """Limits of the typical step on each target: option, what, what it is, what it may be."""
    for cost in report.tpu or (None,):
        where = "" if cost is None else f" on {cost.target}"
        step = StepCost() if cost is None else cost.step
        if gates.max_tpu_step_ms is not None:
            took = None if step.device_seconds is None else step.device_seconds * 1000
            yield "--max-tpu-step-ms", f"ms of a step{where}", took, gates.max_tpu_step_ms
        if gates.max_hbm is not None:
            what = f"bytes of device memory{where}"
            yield "--max-hbm", what, step.memory_bytes, gates.max_hbm


def tell(gate: Gate, *, broken: str, unknown: str) -> int:
    """Say on stderr what a gate says.

    Args:
        gate: Which limits were broken and which cannot be judged.
        broken: The words before each broken limit.
        unknown: The words before each that cannot be judged.

    Returns:
        The exit code: 1 if a limit was broken, 2 if one cannot be judged, else 0.
    """
    for words, sentences in ((broken, gate.broken), (unknown, gate.unknown)):
        for sentence in sentences:
            click.echo(f"xladoctor: {words}: {sentence}", err=True)
    if gate.broken:
        return 1
    return 2 if gate.unknown else 0


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1e6 else f"{value:g}"


def _compilations_after(report: Report, step: int) -> int | None:
    """New graphs of one core in steps after ``step``: the largest number over the cores."""
    counts: Counter[int] = Counter()
    for item in report.compilations:
        if item.step is None:
            return None
        if item.step > step:
            counts.update(item.cores)
    return max(counts.values(), default=0)
