"""The tables as pandas data frames, for notebooks. pandas is imported only here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from xladoctor.errors import MissingExtra
from xladoctor.readings import tables
from xladoctor.readings.places import location

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

_RUN_TABLES = {
    "processes": tables.ProcessRow,
    "cores": tables.CoreRow,
    "steps": tables.StepRow,
    "compilations": tables.CompilationRow,
    "syncs": tables.SyncRow,
    "fallbacks": tables.FallbackRow,
    "launches": tables.LaunchRow,
    "errors": tables.ErrorRow,
    "hangs": tables.HangRow,
    "divergences": tables.DivergenceRow,
}
_REPORT_COLUMNS = ("report", "source", "core", "step")


def to_frames(readings: tables.Readings) -> dict[str, pd.DataFrame]:
    """All tables as data frames, one row a thing, also those that are empty.

    Returns:
        ``processes``, ``cores``, ``steps``, ``compilations``, ``syncs``, ``fallbacks``,
        ``launches``, ``errors``, ``hangs``, ``divergences`` of the runs (column ``run``: the run
        directory; ``part_*``: seconds), and ``metrics``, ``percentiles``, ``counters`` of the
        metrics reports (``report``: their
        position). Times are seconds, sizes bytes; what is not measured is NaN or None.

    Raises:
        MissingExtra: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtra("data frames", "pandas", "report") from None
    frames: dict[str, pd.DataFrame] = {}
    for name, row_type in _RUN_TABLES.items():
        rows = [
            {"run": run.manifest.path, **_flat(row, run.manifest.cwd)}
            for run in readings.runs
            for row in getattr(run, name)
        ]
        columns = None if rows else ["run", *(f.name for f in dataclasses.fields(row_type))]
        frames[name] = pd.DataFrame(rows, columns=columns)
    reports = [*readings.reports, *(report for run in readings.runs for report in run.metrics)]
    keys = [
        dict(zip(_REPORT_COLUMNS, (i, r.source, r.core, r.step), strict=True))
        for i, r in enumerate(reports)
    ]
    metrics: list[dict[str, Any]] = []
    percentiles: list[dict[str, Any]] = []
    counters: list[dict[str, Any]] = []
    for key, report in zip(keys, reports, strict=True):
        for name, metric in report.metrics.items():
            facts = dataclasses.asdict(metric)
            facts.pop("percentiles")
            metrics.append({**key, "metric": name, **facts})
            percentiles += [
                {**key, "metric": name, "percentile": float(head), "value": value}
                for head, value in metric.percentiles.items()
            ]
        counters += [{**key, "counter": n, "value": v} for n, v in report.counters.items()]
    extra: Iterable[tuple[str, list[dict[str, Any]], tuple[str, ...]]] = (
        ("metrics", metrics, ("metric", "total_samples", "accumulator", "unit")),
        ("percentiles", percentiles, ("metric", "percentile", "value")),
        ("counters", counters, ("counter", "value")),
    )
    for name, facts_of_reports, own in extra:
        empty = [*_REPORT_COLUMNS, *own]
        frames[name] = pd.DataFrame(facts_of_reports, columns=None if facts_of_reports else empty)
    return frames


def _flat(row: Any, cwd: str | None) -> dict[str, Any]:
    """A row without nesting: parts, place and cause become columns."""
    out: dict[str, Any] = {}
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if field.name == "parts":
            out.update({f"part_{part}": seconds for part, seconds in value.items()})
        elif field.name == "frames":
            place = location(value, cwd)
            out["filename"] = place.filename if place else None
            out["row"] = place.row if place else None
            out["function"] = place.function if place else None
        elif field.name == "cause":
            out["cause"] = value.kind if value else None
            out["cause_detail"] = value.detail if value else None
        else:
            out[field.name] = value
    return out
