"""The columns of a run, asked by DuckDB and by local clusters of Dask and Ray: docs/queries.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.generate import Large, write
from xladoctor.cli.app import main
from xladoctor.store.columns import TABLES
from xladoctor.store.locations import located

PAGE = Path(__file__).parents[2] / "docs/queries.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A generated run of 4 hosts, of which one core lags, as columns."""
    pytest.importorskip("pyarrow")
    folder = write(Large(4, 40, {2: 0.2}), tmp_path_factory.mktemp("large") / "run")
    assert main(["compact", str(folder), "--jobs", "1"]) == 0
    return folder


def example(language, run):
    """The example of the page, for this run."""
    block = re.search(rf"## {language}\n.*?```py\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    return block.replace("s3://bucket/run", str(run)).replace("RUN", str(run))


@pytest.fixture(scope="module")
def by_duckdb(run):
    duckdb = pytest.importorskip("duckdb")
    text = example("DuckDB", run).replace("import duckdb\n", "").replace(".show()", ".fetchall()")
    return eval(text.strip(), {"duckdb": duckdb})


def test_duckdb_finds_the_core_that_lags(by_duckdb):
    assert len(by_duckdb) == 10
    host, core, steps, own = by_duckdb[0]
    assert (host, core, steps) == ("2", 0, 37)
    assert own > by_duckdb[1][3] + 0.1


@pytest.mark.filterwarnings("ignore")  # Dask's own, of what pandas will remove
def test_dask_says_the_same(run, by_duckdb):
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("dask.dataframe")
    text = example("Dask", run).replace('Client("tcp://scheduler:8786")', "client")
    lines = text.strip().splitlines()
    lines[-1] = f"found = {lines[-1]}"
    lines = [line for line in lines if not line.startswith(("from distributed", "client ="))]
    names: dict[str, object] = {}
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        exec("\n".join(lines), names)
    same(names["found"], by_duckdb)


def same(found, by_duckdb):
    """Whether another engine says what DuckDB does."""
    assert list(found.index) == [(host, core) for host, core, _, _ in by_duckdb]
    assert list(found) == pytest.approx([own for *_, own in by_duckdb])


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_says_the_same(run, by_duckdb, monkeypatch):
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    *lines, last = example("Ray Data", run).strip().splitlines()
    names: dict[str, object] = {}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        exec("\n".join([*lines, f"found = {last}"]), names)
    finally:
        ray.shutdown()
    same(names["found"], by_duckdb)


def test_every_table_is_known_and_only_those_that_are_named_are_fetched(run, monkeypatch, capsys):
    memory = pytest.importorskip("fsspec.implementations.memory")
    store = {f"/queries/run/{file.relative_to(run)}": file for file in run.glob("columns/*/*")}
    fetched = []
    read = memory.MemoryFileSystem.get_file

    def counting(self, path, *rest, **more):
        fetched.append(path)
        return read(self, path, *rest, **more)

    monkeypatch.setattr(memory.MemoryFileSystem, "get_file", counting)
    for name, file in store.items():
        memory.MemoryFileSystem().pipe_file(name, file.read_bytes())
    place = "memory://queries/run"
    count = "SELECT count(*) AS n FROM"
    assert main(["query", place, f"{count} compilations", "--output-format", "json"]) == 0
    assert fetched
    assert all("/compilations/" in path for path in fetched)
    (rows,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["n"] > 0
    assert main(["query", place, f"{count} fallbacks", "--output-format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 0}]  # this run had none
    assert main(["query", place, "SHOW TABLES", "--output-format", "csv"]) == 0
    assert set(capsys.readouterr().out.split()[1:]) == set(TABLES)


@pytest.mark.parametrize("storage", ["bucket", "gs_bucket"])
def test_a_query_over_an_object_storage(run, by_duckdb, storage, request, capsys):
    """By our own command, and by DuckDB alone as the page shows it."""
    duckdb = pytest.importorskip("duckdb")
    fsspec = pytest.importorskip("fsspec")
    place = f"{request.getfixturevalue(storage)}/run"
    for file in run.glob("columns/*/*"):
        located(place).write(str(file.relative_to(run)), file.read_bytes())
    sql = re.search(r'"""(.*?)"""', example("DuckDB", place), re.DOTALL)[1]
    ours = sql.replace(f"read_parquet('{place}/columns/steps/*.parquet')", "steps")
    assert ours != sql
    assert main(["query", place, ours, "--output-format", "json"]) == 0
    rows = [tuple(row.values()) for row in json.loads(capsys.readouterr().out)]
    assert rows == [tuple(row) for row in by_duckdb]
    connection = duckdb.connect()
    connection.register_filesystem(fsspec.filesystem(place.partition("://")[0]))
    assert connection.sql(sql).fetchall() == by_duckdb
    connection.close()


def test_every_column_is_there_and_every_row(run):
    import pyarrow.parquet as pq

    for table, columns in TABLES.items():
        for file in (run / "columns" / table).glob("*.parquet"):
            assert pq.read_schema(file).names == list(columns)
    rows = sum(pq.read_metadata(one).num_rows for one in (run / "columns/steps").iterdir())
    events = [
        json.loads(line)["e"]
        for file in run.glob("hosts/*/*/p*/events.*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert rows == events.count("step")


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["report"], set()),
        (["graph"], set()),
        (["watch", "--once"], set()),
        (["query", "SELECT 1"], {"duckdb"}),
    ],
)
def test_commands_import_no_engine_that_they_do_not_need(run, words, needed):
    command, *rest = words
    program = (
        "import sys\n"
        "from xladoctor.cli.app import main\n"
        f"main({[command, str(run), *rest]!r})\n"
        "heavy = {'duckdb', 'pyarrow', 'fsspec', 'pandas', 'numpy', 'torch', 'multiprocessing'}\n"
        "print('imported:', sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    environ = os.environ | {"PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environ, check=False
    )
    assert done.stderr.splitlines()[-1] == f"imported: {sorted(needed)}"
