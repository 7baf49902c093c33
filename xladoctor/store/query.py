"""Questions in SQL over the columns of a run: DuckDB reads what a query names, out of core."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from xladoctor.errors import MissingExtra, SourceError, UsageError
from xladoctor.store.columns import TABLES

if TYPE_CHECKING:
    from xladoctor.store.locations import Location

#: Types of columns as DuckDB calls them.
_KINDS = {
    "string": "VARCHAR", "int32": "INTEGER", "float64": "DOUBLE", "float32": "FLOAT",
    "bool": "BOOLEAN",
}  # fmt: skip

#: Memory that a query may take before it goes to the disk.
MEMORY = "1GB"


class Answer(NamedTuple):
    """What a query gave.

    Attributes:
        columns: Names.
        rows: Values, row by row.
    """

    columns: list[str]
    rows: list[tuple[Any, ...]]


def ask(location: Location, sql: str) -> Answer:
    """Ask a question of the tables ``steps``, ``reads``, ``fallbacks`` and ``compilations``.

    Args:
        location: A run with columns (``xladoctor compact``).
        sql: One query; it can read these tables and nothing else of this machine.

    Raises:
        MissingExtra: DuckDB is not installed.
        SourceError: The run has no columns.
        UsageError: The query is none.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("queries", "duckdb", "pod") from None
    there = [name for name in location.sizes("columns") if name.endswith(".parquet")]
    # What a query does not name need not come to this machine.
    named = {table for table in TABLES if re.search(rf"\b{table}\b", sql, re.IGNORECASE)}
    files = [name for name in there if name.split("/")[1] in named]
    if not there:
        raise SourceError(
            f"{location.url}: this run has no columns yet: xladoctor compact {location.url}"
        )
    with tempfile.TemporaryDirectory(prefix="xladoctor-query-") as name:
        top = location.local(sorted(files), Path(name) / "run")
        spill = Path(name) / "spill"
        connection = duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(spill)})
        try:
            for table in TABLES:
                if any(file.startswith(f"columns/{table}/") for file in files):
                    where = f"{top}/columns/{table}/*.parquet".replace("'", "''")
                    connection.execute(
                        f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{where}')"  # noqa: S608
                    )
                else:  # nobody had such a row, or nobody asks
                    kinds = [f"{one} {_KINDS[kind]}" for one, kind in TABLES[table].items()]
                    connection.execute(f"CREATE TABLE {table} ({', '.join(kinds)})")
            # From here on a query that somebody was sent can read nothing but the run, and write
            # nothing but what it spills.
            folders = ", ".join(
                _quoted(str(folder)) for folder in (f"{top}{os.sep}", f"{spill}{os.sep}")
            )
            connection.execute(f"SET allowed_directories = [{folders}]")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            found = connection.execute(sql)
            columns = [one[0] for one in found.description or ()]
            return Answer(columns, found.fetchall())
        except duckdb.Error as error:
            said = str(error).partition("\n")[0]
            raise UsageError(f"the query was not answered: {said}") from None
        finally:
            connection.close()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
