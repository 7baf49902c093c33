"""The steps, reads, fallbacks and compilations of a part as columns (Parquet), one file a table.

``docs/data.md`` has the same tables for one run; here they carry the host besides, and ``core`` is
the core's number on it. Any engine that reads Parquet reads them: DuckDB, Dask, Ray, Spark.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from xladoctor.errors import MissingExtra
from xladoctor.readings.fields import integer, number
from xladoctor.readings.places import location

if TYPE_CHECKING:
    from pathlib import Path

    from xladoctor.readings.tables import Frame

#: Parts of a step, as the recorder names them.
PARTS = (
    "compile", "execute", "input_wait", "host_sync", "trace", "fallback", "core_wait", "transfer",
    "other",
)  # fmt: skip

#: Table to its columns and their types, as Arrow names these; each begins with who and when.
_WHO = {"host": "string", "incarnation": "string", "process": "string", "core": "int32"}
_WHEN = {"first_step": "int32", "last_step": "int32"}
_WHERE = {"filename": "string", "row": "int32", "function": "string"}
TABLES: dict[str, dict[str, str]] = {
    "steps": {
        **_WHO, **_WHEN, "steps": "int32", "start_seconds": "float64", "seconds": "float64",
        **{f"{part}_seconds": "float32" for part in PARTS},
        "fastest_seconds": "float32", "slowest_seconds": "float32",
        "host_syncs": "int32", "fallbacks": "int32", "graphs_run": "int32",
    },
    "reads": {
        **_WHO, **_WHEN, **_WHERE, "what": "string", "count": "int32", "seconds": "float32",
    },
    "fallbacks": {
        **_WHO, **_WHEN, **_WHERE, "operation": "string", "count": "int32", "seconds": "float32",
    },
    "compilations": {
        **_WHO, "step": "int32", **_WHERE, "trigger": "string", "seconds": "float32",
        "graph": "string", "reused": "bool", "executions": "int32", "cause": "string",
    },
}  # fmt: skip

#: Rows after which a group of rows is written: memory stays bounded.
_GROUP = 100_000


class ColumnWriter:
    """Writes the columns of one part.

    Args:
        folder: Where; one file a table below ``<table>/``.
        host: The host's name.
        incarnation: Which of its incarnations.
        cwd: Where the command ran: file names are relative to it.

    Raises:
        MissingExtra: pyarrow is not installed.
    """

    def __init__(self, folder: Path, host: str, incarnation: str, cwd: str | None) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise MissingExtra("columnar files", "pyarrow", "pod") from None
        self._pa, self._pq = pa, pq
        self._folder = folder
        self._name = f"{host}@{incarnation}.parquet"
        self._who = (host, incarnation)
        self._cwd = cwd
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self._writers: dict[str, Any] = {}
        self._sites: dict[Any, dict[str, Any]] = {}
        self._process = ""

    def begin(self, process: str) -> None:
        """What follows is of another process."""
        self._process, self._sites = process, {}

    def feed(self, row: dict[str, Any]) -> None:
        """Take a row of a process's record; a damaged one is left out (the digest says it)."""
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            self._feed(row)

    def _feed(self, row: dict[str, Any]) -> None:
        kind = row.get("e")
        if kind == "site":
            self._sites[row.get("id")] = self._place(row.get("frames"))
        elif kind == "step":
            self._step(row)
        elif kind == "compilation":
            cause = row.get("cause")
            self._put(
                "compilations", row, **self._sites.get(row.get("site"), {}), step=row.get("step"),
                trigger=row.get("trigger"), seconds=row.get("seconds"), graph=row.get("graph"),
                reused=row.get("reused") is True, executions=row.get("executions"),
                cause=cause.get("kind") if isinstance(cause, dict) else None,
            )  # fmt: skip

    def close(self) -> dict[str, Path]:
        """Write what is left; gives table to file, of those that have rows."""
        for table, rows in self._rows.items():
            if rows:
                self._flush(table)
        for writer in self._writers.values():
            writer.close()
        return {table: self._folder / table / self._name for table in self._writers}

    def _step(self, row: dict[str, Any]) -> None:
        first, last = row.get("first"), row.get("last")
        parts = row.get("parts") or {}
        when = {"first_step": first, "last_step": last}
        syncs, fallbacks = row.get("syncs") or (), row.get("fallbacks") or ()
        self._put(
            "steps", row, **when,
            steps=last - first + 1 if first is not None and last is not None else 0,
            start_seconds=row["t0"], seconds=row["t1"] - row["t0"],
            **{f"{part}_seconds": parts.get(part) for part in PARTS},
            fastest_seconds=row.get("fastest"), slowest_seconds=row.get("slowest"),
            host_syncs=sum(entry[2] for entry in syncs),
            fallbacks=sum(entry[2] for entry in fallbacks),
            graphs_run=sum(entry[2] for entry in row.get("launches") or ()),
        )  # fmt: skip
        for site, what, count, seconds, *_ in syncs:
            place = self._sites.get(site, {})
            self._put("reads", row, **when, **place, what=what, count=count, seconds=seconds)
        for site, what, count, seconds, *_ in fallbacks:
            place = self._sites.get(site, {})
            self._put(
                "fallbacks", row, **when, **place, operation=what, count=count, seconds=seconds
            )

    def _put(self, table: str, event: dict[str, Any], **values: Any) -> None:
        rows = self._rows[table]
        host, incarnation = self._who
        values |= {
            "host": host, "incarnation": incarnation, "process": self._process,
            "core": event.get("core") or 0,
        }  # fmt: skip
        kinds = TABLES[table].items()
        rows.append({name: _of_kind(values.get(name), kind) for name, kind in kinds})
        if len(rows) >= _GROUP:
            self._flush(table)

    def _flush(self, table: str) -> None:
        pa = self._pa
        schema = pa.schema(
            [(name, pa.type_for_alias(kind)) for name, kind in TABLES[table].items()]
        )
        if table not in self._writers:
            file = self._folder / table / self._name
            file.parent.mkdir(parents=True, exist_ok=True)
            self._writers[table] = self._pq.ParquetWriter(file, schema, compression="zstd")
        self._writers[table].write_table(pa.Table.from_pylist(self._rows[table], schema=schema))
        self._rows[table] = []

    def _place(self, frames: Any) -> dict[str, Any]:
        found: tuple[Frame, ...] = tuple(
            (str(file), int(row), str(function)) for file, row, function in frames or ()
        )
        place = location(found, self._cwd)
        if place is None:
            return {}
        return {"filename": place.filename, "row": place.row, "function": place.function}


def _of_kind(value: Any, kind: str) -> Any:
    """A value as a column takes it; None for what is not of its kind."""
    if kind == "string":
        return value if isinstance(value, str) else None
    if kind == "bool":
        return value is True
    return integer(value) if kind.startswith("int") else number(value)
