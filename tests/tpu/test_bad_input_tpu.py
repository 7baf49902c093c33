"""What is missing, cut, too many or too large costs itself and one sentence, and nothing else."""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest

from tests.tpu import graphs
from xladoctor import readings
from xladoctor.errors import SourceError, XladoctorError
from xladoctor.tpu import engines, process, study, targets
from xladoctor.tpu.cache import Cache
from xladoctor.tpu.compiler import Request

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = graphs.real

(V5E,) = targets.find("v5e-8")


def costs(run: Path, most: int = 24) -> tuple[study.TargetCost, ...]:
    (read,) = readings.load([str(run)]).runs
    return study.study(read, (V5E,), study.Settings(Cache(None), most=most))


def task() -> process.Task:
    return Request(graphs.prepared(graphs.product(128, 128, 128)), V5E).task


@pytest.fixture
def other_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jaxlib and a libtpu that are not those we know (invented), before the real ones."""
    for name in ("jaxlib", "libtpu"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "jaxlib" / "_jax.py").write_text("load_pjrt_plugin = None\n")
    (tmp_path / "libtpu" / "libtpu.so").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("other_versions")
def test_other_versions_are_told_with_those_that_are_needed(tmp_path: Path) -> None:
    one = process.Process(tmp_path, 0)
    with pytest.raises(XladoctorError, match="has no initialize_pjrt_plugin") as caught:
        one.ask(task(), 60.0)
    one.close()
    assert "jaxlib 0.7.1 and libtpu 0.0.21" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_of_500_graphs_those_of_the_step_come_first_and_the_rest_is_counted(
    tmp_path: Path,
) -> None:
    texts = [graphs.product(128, 128, 8 * size) for size in range(1, 501)]
    (cost,) = costs(graphs.run(tmp_path / "run", *texts), most=2)
    assert len(cost.graphs) == 2
    assert all(graph.cycles for graph in cost.graphs)
    assert "498 of 500 graphs were not compiled (--tpu-graphs 2)" in " ".join(cost.notes)


def test_a_cut_graph_costs_itself_alone(tmp_path: Path) -> None:
    run = graphs.run(tmp_path / "run", graphs.product(128, 128, 128), graphs.product(128, 128, 256))
    (cut,) = run.rglob("0000.pb.z")
    cut.write_bytes(cut.read_bytes()[:-40])
    (cost,) = costs(run)
    assert [graph.graph for graph in cost.graphs] == ["graph1"]
    assert any("0000.pb.z" in note and "profile again" in note for note in cost.notes)


def test_a_run_without_any_graph_is_one_sentence(tmp_path: Path) -> None:
    run = graphs.run(tmp_path / "run", graphs.product(128, 128, 128))
    (gone,) = run.rglob("0000.pb.z")
    gone.unlink()
    with pytest.raises(SourceError, match="no graphs for the TPU compiler"):
        costs(run)


def test_a_topology_that_libtpu_does_not_know_is_its_graphs_sentence(tmp_path: Path) -> None:
    one = process.Process(tmp_path, 0)
    wanted = task()
    changed = {name: getattr(wanted, name) for name in wanted.__dataclass_fields__}
    unknown = process.Task(**{**changed, "topology": "v99:2x2x1"})
    try:
        refused, answer = one.ask(unknown, 120.0), one.ask(wanted, 120.0)
    finally:
        one.close()
    assert refused.refusal is not None
    assert "libtpu has no topology v99:2x2x1" in refused.refusal.message
    assert answer.refusal is None


def test_without_room_for_the_compilers_files_it_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(XladoctorError, match="TMPDIR") as caught:
        list(engines.Local(1).answers([task()], 60.0, lambda _: None))
    assert "\n" not in str(caught.value)


def test_a_disk_that_goes_away_costs_the_graphs_and_not_the_report(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    one = process.Process(folder, 0)
    try:
        first = one.ask(task(), 120.0)
        shutil.rmtree(folder)
        second = one.ask(task(), 120.0)
        folder.mkdir()
        third = one.ask(task(), 120.0)
    finally:
        one.close()
    assert first.refusal is None
    assert second.refusal is not None
    assert second.refusal.kind == "not-asked"
    assert str(folder) in second.refusal.message
    assert third.refusal is None
