"""Graphs are compiled elsewhere too: by joblib's own backends and by a real cluster of Dask."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tpu import graphs
from xladoctor.errors import UsageError, XladoctorError
from xladoctor.tpu import compiler, engines, installed, process, remote, targets
from xladoctor.tpu.cache import Cache
from xladoctor.tpu.compiler import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("joblib")
pytestmark = [pytest.mark.xla, graphs.real]

ROOT = Path(__file__).resolve().parents[2]
(V5E,) = targets.find("v5e-8")


def requests(engine: engines.Engine) -> list[Request]:
    version = engine.compiler()
    sizes = (128, 256)
    made = [graphs.prepared(graphs.product(128, 128, size)) for size in sizes]
    refused = graphs.prepared(graphs.large(9))
    return [Request(graph, V5E, 1, version) for graph in (*made, refused)]


@pytest.fixture(scope="module")
def here() -> list[tuple[int | None, str | None]]:
    """What this machine says of the same graphs."""
    return asked(engines.find(None, 1))


def asked(engine: engines.Engine) -> list[tuple[int | None, str | None]]:
    wanted = requests(engine)
    found = dict(compiler.compile_all(wanted, cache=Cache(None), engine=engine))
    return [
        (found[one].cycles, getattr(found[one].refusal, "kind", None)) for one in wanted
    ]  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A scheduler and a worker in processes of their own."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None,
        silence_logs="ERROR", memory_limit=0,
    ) as made:  # fmt: skip
        yield made.scheduler_address


@pytest.mark.filterwarnings("default")  # those of Dask
def test_a_cluster_of_dask_gives_the_answers_of_this_machine(
    cluster: str, here: list[tuple[int | None, str | None]]
) -> None:
    engine = engines.find(cluster.replace("tcp", "dask"), 1)
    assert engine.compiler() == installed.compiler_version()
    assert asked(engine) == here
    assert [kind for _, kind in here] == [None, None, "memory"]


def test_processes_of_joblib_give_the_answers_of_this_machine(
    here: list[tuple[int | None, str | None]],
) -> None:
    assert asked(engines.find("loky", 1)) == here


@pytest.mark.filterwarnings("default")
def test_a_cluster_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "_REACHED", 1)
    with pytest.raises(XladoctorError, match="no Dask scheduler answers there") as caught:
        engines.find("dask://127.0.0.1:9", 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["slurm://host", "nothing", "dask"])
def test_an_engine_that_does_not_exist_is_refused_with_those_that_do(name: str) -> None:
    with pytest.raises(UsageError, match="dask://HOST:PORT"):
        engines.find(name, 1)


def test_workers_without_libtpu_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs.hide(monkeypatch, "libtpu")
    engine = engines.find("threading", 1)  # its workers are here
    with pytest.raises(XladoctorError, match="workers cannot compile") as caught:
        engine.compiler()
    assert 'pip install "xladoctor[tpu]"' in str(caught.value)


def test_a_worker_with_another_version_costs_its_graph_and_says_so() -> None:
    task = Request(graphs.prepared(graphs.product(8, 8, 8)), V5E, 1, "libtpu 9.9").task
    found = remote.Compile(task, 60.0)()
    assert "others libtpu 9.9" in found["problem"]


def test_the_command_line_takes_an_engine_and_refuses_what_is_none(tmp_path: Path) -> None:
    graphs.run(tmp_path / "run", graphs.product(128, 128, 128))

    def report(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "xladoctor", "report", "run", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    done = report("--tpu", "v5e-8", "--tpu-engine", "threading")
    assert done.returncode == 0, done.stderr
    assert "device time of a step" in done.stdout
    for words, why in (
        (("--tpu", "v5e-8", "--tpu-engine", "nothing"), "joblib has no such backend"),
        (("--tpu-engine", "loky"), "--tpu-engine needs --tpu"),
    ):
        refused = report(*words)
        assert refused.returncode == 2
        assert why in refused.stderr
        assert "Traceback" not in refused.stderr


def test_the_compiler_leaves_no_logs_behind(tmp_path: Path) -> None:
    before = set(Path("/tmp/tpu_logs").glob("*"))  # a number of a process may come again
    one = process.Process(tmp_path, 0)
    one.ask(Request(graphs.prepared(graphs.product(64, 64, 64)), V5E).task, 60.0)
    assert one._process is not None
    worker = one._process.pid
    one.close()
    assert not set(Path("/tmp/tpu_logs").glob(f"*.{worker}")) - before


KILLED = """\
import json, sys, threading
from pathlib import Path
from tests.tpu import graphs
from xladoctor.tpu import process, targets
from xladoctor.tpu.compiler import Request
(target,) = targets.find("v5e-8")
one = process.Process(Path(sys.argv[1]), 0)
one.ask(Request(graphs.prepared(graphs.product(64, 64, 64)), target).task, 600.0)
slow = Request(graphs.prepared(graphs.product(4096, 4096, 4096)), target).task
threading.Thread(target=one.ask, args=(slow, 600.0), daemon=True).start()
print(json.dumps(one._process.pid), flush=True)
threading.Event().wait()
"""


def test_the_compiler_ends_when_who_asks_it_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    worker = json.loads(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(600):
        state = Path(f"/proc/{worker}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the compiler went on")
