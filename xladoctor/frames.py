"""``xladoctor.load_run``: a recorded run as tables, for people's own questions.

An outer door like ``interactive``; pandas and pyarrow are imported when a table is asked for.
"""

from __future__ import annotations

import dataclasses
import functools
import html
from typing import TYPE_CHECKING, Any

from xladoctor import diagnosis, visible
from xladoctor.columns import TABLES, Column
from xladoctor.errors import MissingExtra, UsageError
from xladoctor.store import runs as store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from xladoctor.findings import Location
    from xladoctor.results import Report
    from xladoctor.timeline import Event, Stretch

_Row = dict[str, Any]

#: Kinds of column as pandas calls them; lists stay objects. All of them can say "missing".
_PANDAS = {"int": "Int64", "float": "float64", "text": "string", "bool": "boolean"}


def load_run(*paths: str | Path) -> RunTables:
    """Read a recorded run as tables.

    Args:
        paths: A run directory; several are the cores of one run. What else ``xladoctor report``
            reads works too, but text holds metrics and findings only.

    Raises:
        SourceError: One of them cannot be read.
        UsageError: None is given.
    """
    read = store.load([str(path) for path in paths])
    return RunTables(diagnosis.diagnose(read))


class RunTables:
    """The tables of a run: ``steps``, ``compilations``, ``reads``, ``fallbacks``, ``cores``,
    ``metrics`` and ``findings``, each a pandas data frame with the columns of :meth:`columns`.

    What was not measured is missing (``NA``), never 0. Frames are made once and then the same
    object: copy before you change one.

    Attributes:
        result: The whole report as an object.
    """  # noqa: D205

    def __init__(self, result: Report) -> None:
        self.result = result

    @property
    def counts(self) -> dict[str, int]:
        """The measured counts of the summary by name; what was not measured is left out."""
        summary = self.result.summary
        fallbacks = None if summary.fallbacks is None else sum(summary.fallbacks.values())
        counts = {
            "cores": summary.cores,
            "steps": summary.steps,
            "compilations": summary.compilations,
            "compilations_after_warmup": summary.compilations_after_warmup,
            "fallbacks": fallbacks,
            "host_syncs": summary.host_syncs,
        }
        return {name: count for name, count in counts.items() if count is not None}

    @staticmethod
    def columns(table: str) -> tuple[Column, ...]:
        """The columns of a table, each with type, unit and meaning.

        Raises:
            UsageError: There is no such table.
        """
        if table not in TABLES:
            raise UsageError(f"there is no table {table!r}: choose from {', '.join(TABLES)}")
        return TABLES[table]

    def frame(self, table: str) -> pd.DataFrame:
        """A table as a pandas data frame; its ``attrs["units"]`` are units by column.

        Raises:
            UsageError: There is no such table.
            MissingExtra: pandas is not installed.
        """
        columns = self.columns(table)
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("data frames", "pandas", "report") from None
        rows = self._rows(table)
        made: dict[str, Any] = {
            column.name: pd.Series(
                [row.get(column.name) for row in rows], dtype=_PANDAS.get(column.kind, "object")
            )
            for column in columns
        }
        frame: pd.DataFrame = pd.DataFrame(made)
        frame.attrs["units"] = {column.name: column.unit for column in columns if column.unit}
        return frame

    def arrow(self, table: str) -> pa.Table:
        """A table as an Arrow table; unit and meaning are metadata of its fields.

        Raises:
            UsageError: There is no such table.
            MissingExtra: pyarrow is not installed.
        """
        columns = self.columns(table)
        try:
            import pyarrow as pa
        except ImportError:
            raise MissingExtra("Arrow tables", "pyarrow", "arrow") from None
        kinds = {
            "int": pa.int64(), "float": pa.float64(), "text": pa.string(), "bool": pa.bool_(),
            "ints": pa.list_(pa.int64()), "texts": pa.list_(pa.string()),
        }  # fmt: skip
        schema = pa.schema(
            [
                pa.field(
                    column.name,
                    kinds[column.kind],
                    metadata={"unit": column.unit, "description": column.text},
                )
                for column in columns
            ]
        )
        return pa.Table.from_pylist(self._rows(table), schema=schema)

    @functools.cached_property
    def steps(self) -> pd.DataFrame:
        """Where the time of each core went, one row a step."""
        return self.frame("steps")

    @functools.cached_property
    def compilations(self) -> pd.DataFrame:
        """Graphs that were new, and why, one row a graph."""
        return self.frame("compilations")

    @functools.cached_property
    def reads(self) -> pd.DataFrame:
        """Reads of device values, one row a step and line."""
        return self.frame("reads")

    @functools.cached_property
    def fallbacks(self) -> pd.DataFrame:
        """Operations that ran on the CPU, one row a step and line."""
        return self.frame("fallbacks")

    @functools.cached_property
    def cores(self) -> pd.DataFrame:
        """What each core did."""
        return self.frame("cores")

    @functools.cached_property
    def metrics(self) -> pd.DataFrame:
        """torch_xla's own metrics and counters, one row a name."""
        return self.frame("metrics")

    @functools.cached_property
    def findings(self) -> pd.DataFrame:
        """What is wrong, the most costly first."""
        return self.frame("findings")

    def _rows(self, table: str) -> list[_Row]:
        rows: Callable[[Report], Iterator[_Row]] = _ROWS[table]
        return list(rows(self.result))

    def __repr__(self) -> str:
        lines = [f"  {name:<13}{len(self._rows(name)):>8,} rows" for name in TABLES]
        return "\n".join([f"Run: {visible.line(self.result.summary.verdict)}", *lines])

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, and which tables there are."""
        verdict = html.escape(visible.line(self.result.summary.verdict))
        rows = "".join(
            f"<tr><td><code>{name}</code></td><td>{len(self._rows(name)):,}</td>"
            f"<td style='text-align:left'>{', '.join(one.name for one in columns)}</td></tr>"
            for name, columns in TABLES.items()
        )
        head = "<tr><th>table</th><th>rows</th><th style='text-align:left'>columns</th></tr>"
        return f"<p><b>{verdict}</b></p><table>{head}{rows}</table>"


# -- rows ------------------------------------------------------------------------------------------
def _at(place: Location | None, prefix: str = "") -> _Row:
    if place is None:
        return {}
    return {
        f"{prefix}filename": place.filename,
        f"{prefix}row": place.row,
        f"{prefix}function": place.function,
        f"{prefix}cell": place.cell,
    }


def _stretches(report: Report) -> tuple[Stretch, ...]:
    return report.timeline.stretches if report.timeline is not None else ()


def _steps(report: Report) -> Iterator[_Row]:
    for one in _stretches(report):
        yield {
            "core": one.core,
            "first_step": one.first,
            "last_step": one.last,
            "steps": one.steps,
            "start_seconds": one.start,
            "seconds": one.seconds,
            **{f"{part}_seconds": seconds for part, seconds in one.parts.items()},
            "fastest_seconds": one.fastest,
            "slowest_seconds": one.slowest,
            "compilations": one.count("compile"),
            "host_syncs": one.count("host_sync"),
            "fallbacks": one.count("fallback"),
            "graphs_run": one.graphs,
        }


def _compilations(report: Report) -> Iterator[_Row]:
    for number, one in enumerate(report.compilations, 1):
        yield {
            **_at(one.cause.location, "cause_"),
            **_at(one.location),
            "number": number,
            "cores": list(one.cores),
            "step": one.step,
            "seconds": one.seconds,
            "graph": one.graph,
            "trigger": one.trigger,
            "cause": one.cause.kind,
            "cause_detail": one.cause.detail,
            "after_warmup": one.after_warmup,
            "modelled": one.modelled,
        }


def _events(report: Report, part: str) -> Iterator[tuple[_Row, Event]]:
    for one in _stretches(report):
        for event in one.events:
            if event.part == part:
                row = {"core": one.core, "first_step": one.first, "last_step": one.last}
                counts = {"count": event.count, "seconds": event.seconds}
                yield {**row, **_at(event.location), **counts}, event


def _reads(report: Report) -> Iterator[_Row]:
    for row, event in _events(report, "host_sync"):
        yield {**row, "what": event.what, **(event.kinds or {})}


def _fallbacks(report: Report) -> Iterator[_Row]:
    for row, event in _events(report, "fallback"):
        yield {**row, "operation": event.what}


def _cores(report: Report) -> Iterator[_Row]:
    for one in report.cores:
        yield dataclasses.asdict(one)


def _metrics(report: Report) -> Iterator[_Row]:
    for source in report.metrics:
        of = {"source": source.source, "core": source.core, "step": source.step}
        for name, one in source.metrics.items():
            yield {
                **of,
                "name": name,
                "kind": "metric",
                "samples": one.total_samples,
                "total": one.accumulator,
                "unit": one.unit,
                **{f"p{head}": one.percentiles.get(head) for head in ("50", "90", "99")},
            }
        for name, value in source.counters.items():
            yield {**of, "name": name, "kind": "counter", "samples": value}


def _findings(report: Report) -> Iterator[_Row]:
    for one in report.findings:
        yield {
            **_at(one.locations[0] if one.locations else None),
            "code": one.code,
            "name": one.name,
            "severity": one.severity.value,
            "message": one.message,
            "suggestion": one.suggestion,
            "count": one.count,
            "seconds": one.seconds,
            "cores": list(one.cores),
            "confirmed_by": list(one.confirmed_by),
            "ran": one.ran,
            "tpu_seconds": one.tpu_seconds,
        }


_ROWS: dict[str, Callable[[Report], Iterator[_Row]]] = {
    "steps": _steps,
    "compilations": _compilations,
    "reads": _reads,
    "fallbacks": _fallbacks,
    "cores": _cores,
    "metrics": _metrics,
    "findings": _findings,
}
