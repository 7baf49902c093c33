"""Invented graphs, compiled by the real TPU compiler: which findings they give, at which line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tpu import graphs
from xladoctor import diagnosis, readings
from xladoctor.errors import SourceError
from xladoctor.findings import Severity
from xladoctor.tpu import study, targets
from xladoctor.tpu.cache import Cache

if TYPE_CHECKING:
    from pathlib import Path

    from xladoctor.findings import Finding
    from xladoctor.results import Report

pytestmark = graphs.real


def report(run: Path, names: str = "v5e-8", **settings: object) -> Report:
    read = readings.load([str(run)])
    asked = study.Settings(Cache(None), **settings)  # type: ignore[arg-type]
    return diagnosis.diagnose(read, tpu=study.study(read.runs[0], targets.find(names), asked))


def found(given: Report, code: str) -> list[Finding]:
    return [one for one in given.findings if one.code == code]


def test_the_step_is_all_its_graphs_and_each_cycle_has_its_line(tmp_path: Path) -> None:
    run = graphs.run(
        tmp_path / "run",
        graphs.product(1024, 1024, 1024, row=11),
        graphs.product(2048, 1024, 1024, row=12),
    )
    (cost,) = report(run).tpu or ()
    assert [graph.per_step for graph in cost.graphs] == [1.0, 1.0]
    cycles = [graph.cycles for graph in cost.graphs]
    assert None not in cycles
    assert cost.step.device_seconds == pytest.approx(sum(c or 0 for c in cycles) / 1.5e9)
    assert cost.step.flops == pytest.approx(2 * 1024**3 + 4 * 1024**3)
    rows = {row.location.row for graph in cost.graphs for row in graph.lines if row.location}
    assert rows == {11, 12}
    share = cost.step.matrix_unit_share
    assert share is not None
    assert 0.1 < share <= 1


def test_what_does_not_fit_is_an_error_at_the_tensors_line(tmp_path: Path) -> None:
    given = report(graphs.run(tmp_path / "run", graphs.large(9)), "v3-8,v5p-8")
    (finding,) = found(given, "XLA730")
    assert "v3-8" in finding.message
    assert given.findings[0] is finding
    small, roomy = given.tpu or ()
    assert (small.step.fits, roomy.step.fits) == (False, True)
    assert small.step.device_seconds is None
    assert roomy.step.device_seconds is not None


def test_padding_is_told_with_the_dimension_and_not_where_there_is_none(tmp_path: Path) -> None:
    padded = report(graphs.run(tmp_path / "a", graphs.batched(2048, 9, row=14)))
    (finding,) = found(padded, "XLA723")
    assert "9 -> " in finding.message
    assert finding.locations[0].row == 14
    assert finding.tpu_seconds
    even = report(graphs.run(tmp_path / "b", graphs.product(4096, 4096, 1024, "bf16")))
    assert not found(even, "XLA723")


def test_copies_between_layouts_are_told(tmp_path: Path) -> None:
    """1025 columns are stored as rows, which saves padding; a gather wants them as columns."""
    given = report(graphs.run(tmp_path / "run", graphs.gathered(1000, 1025, row=21)))
    (finding,) = found(given, "XLA724")
    assert finding.locations[0].row == 21
    even = report(graphs.run(tmp_path / "even", graphs.gathered(1024, 1024)))
    assert not found(even, "XLA724")


def test_a_gather_is_told_with_its_bytes(tmp_path: Path) -> None:
    given = report(graphs.run(tmp_path / "run", graphs.gathered(65536, 1024, row=20)))
    (finding,) = found(given, "XLA727")
    assert finding.locations[0].row == 20
    assert "gather" in finding.message
    few = report(graphs.run(tmp_path / "few", graphs.gathered(64, 128)))
    assert not found(few, "XLA727")


def test_float64_is_told_and_float32_is_not(tmp_path: Path) -> None:
    given = report(graphs.run(tmp_path / "run", graphs.wide(512, row=30)))
    (finding,) = found(given, "XLA726")
    assert "float64" in finding.message
    assert finding.locations[0].row == 30
    other = report(graphs.run(tmp_path / "other", graphs.wide(512).replace("f64", "f32")))
    assert not found(other, "XLA726")


def test_float32_is_told_where_memory_binds(tmp_path: Path) -> None:
    wide = graphs.product(8, 8192, 8192, row=13)
    (finding,) = found(report(graphs.run(tmp_path / "run", wide)), "XLA725")
    assert finding.locations[0].row == 13
    half = report(graphs.run(tmp_path / "half", wide.replace("f32", "bf16")))
    assert not found(half, "XLA725")


def test_many_small_collectives_are_told(tmp_path: Path) -> None:
    given = report(graphs.run(tmp_path / "run", graphs.reductions(9), cores=8), "v3-8")
    (finding,) = found(given, "XLA728")
    assert finding.count == 9
    assert finding.locations[0].row == 50
    assert "of 4.0 KiB each" in finding.message
    assert "1 would do" in finding.message
    step = (given.tpu or ())[0].step
    assert (step.collectives, step.collectives_needed) == (9, 1)
    assert step.collective_bytes == pytest.approx(9 * 8 * 128 * 4, abs=9 * 4)
    few = report(graphs.run(tmp_path / "few", graphs.reductions(2), cores=8), "v3-8")
    assert not found(few, "XLA728")


def test_collectives_that_need_one_another_cannot_be_one(tmp_path: Path) -> None:
    text = graphs.reductions(9, one_after_the_other=True)
    given = report(graphs.run(tmp_path / "run", text, cores=8), "v3-8")
    (finding,) = found(given, "XLA728")
    assert "cannot be one" in finding.message
    assert finding.severity is Severity.INFO
    step = (given.tpu or ())[0].step
    assert (step.collectives, step.collectives_needed) == (9, 9)


def test_few_rows_of_a_large_table_are_not_told(tmp_path: Path) -> None:
    """64 rows of a table of 64 MiB."""
    table = graphs.gathered(64, 128).replace("table = f32[64,", "table = f32[131072,")
    assert not found(report(graphs.run(tmp_path / "run", table)), "XLA727")


def test_a_loop_of_unknown_length_is_counted_once_and_said(tmp_path: Path) -> None:
    (cost,) = report(graphs.run(tmp_path / "run", graphs.looped("parameter(1)"))).tpu or ()
    assert any("counted once" in note for note in cost.notes)
    assert cost.step.device_seconds


@pytest.mark.parametrize("dtype", ["s32", "s64"])
def test_a_loop_is_counted_by_its_turns(tmp_path: Path, dtype: str) -> None:
    """libtpu does not say how many; a 64-bit number it counts in halves."""
    took, flops = {}, {}
    for turns in (2, 8):
        text = graphs.looped(f"constant({turns})", dtype=dtype)
        (cost,) = report(graphs.run(tmp_path / str(turns), text)).tpu or ()
        assert not any("counted once" in note for note in cost.notes)
        took[turns], flops[turns] = cost.step.device_seconds or 0, cost.step.flops or 0
    assert took[8] > 2.5 * took[2]
    assert flops[8] == pytest.approx(4 * flops[2], rel=0.01)


def test_what_is_not_estimated_is_told_by_kind_with_its_bytes(tmp_path: Path) -> None:
    (cost,) = report(graphs.run(tmp_path / "run", graphs.gathered(65536, 1024))).tpu or ()
    (note,) = [one for one in cost.notes if "makes no estimate" in one]
    assert "gathers 1" in note
    assert "at full memory bandwidth" in note


def test_a_step_that_waits_for_input_is_not_told_to_trace_less(tmp_path: Path) -> None:
    text = graphs.product(1024, 1024, 1024)
    given = report(graphs.run(tmp_path / "run", text, trace=0.01, input_wait=0.3))
    assert not found(given, "XLA602")
    (finding,) = found(given, "XLA601")
    assert "waiting for input" in finding.message
    assert "more workers" in finding.suggestion
    step = (given.tpu or ())[0].step
    assert step.tracing_seconds == pytest.approx(0.01)
    assert step.input_wait_seconds == pytest.approx(0.3)
    assert step.host_seconds == pytest.approx(0.31)


def test_a_refused_graph_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    text = graphs.product(8, 8, 8).replace(
        "dot(a, b)", 'custom-call(a, b), custom_call_target="no"'
    )
    text = text.replace(", lhs_contracting_dims={1}, rhs_contracting_dims={0}", "")
    given = report(graphs.run(tmp_path / "run", text, graphs.product(256, 256, 256)))
    (finding,) = found(given, "XLA729")
    assert "no" in finding.message
    (cost,) = given.tpu or ()
    assert sorted(graph.error is None for graph in cost.graphs) == [False, True]
    assert cost.step.device_seconds is None  # half a step is no step


def test_a_host_that_is_slower_is_told_and_simulated_cores_share_theirs(tmp_path: Path) -> None:
    text = graphs.product(1024, 1024, 1024)
    alone = report(graphs.run(tmp_path / "one", text, trace=0.2))
    (finding,) = found(alone, "XLA602")
    step = (alone.tpu or ())[0].step
    assert step.host_seconds == pytest.approx(0.2)
    assert finding.tpu_seconds == pytest.approx(0.2, rel=0.01)
    shared = report(graphs.run(tmp_path / "eight", text, cores=8, trace=0.2), "v3-8")
    step = (shared.tpu or ())[0].step
    assert step.host_seconds == pytest.approx(0.2 / 8)
    assert step.host_seconds_at_most == pytest.approx(0.2)
    assert "at least" in found(shared, "XLA602")[0].message
    fast = report(graphs.run(tmp_path / "fast", text, trace=1e-6))
    assert not found(fast, "XLA602")


def test_findings_are_ranked_by_what_they_cost_on_the_tpu(tmp_path: Path) -> None:
    given = report(graphs.run(tmp_path / "run", graphs.batched(2048, 9), trace=0.2))
    codes = [one.code for one in given.findings]
    assert codes.index("XLA602") < codes.index("XLA723")
    assert any("ranked by what they cost in these 6 steps: on v5e-8" in n for n in given.notes)


def test_a_graph_that_was_cut_costs_itself(tmp_path: Path) -> None:
    run = graphs.run(tmp_path / "run", graphs.product(256, 256, 256), graphs.product(128, 128, 128))
    path = run / "p5-1" / "graphs" / "0001.pb.z"
    path.write_bytes(path.read_bytes()[:20])
    (cost,) = report(run).tpu or ()
    assert len(cost.graphs) == 1
    assert any("0001.pb.z" in note for note in cost.notes)
    path.unlink()
    (run / "p5-1" / "graphs" / "0000.pb.z").unlink()
    with pytest.raises(SourceError, match="no graphs for the TPU compiler"):
        report(run)


def test_only_as_many_graphs_as_asked_for_and_it_is_said(tmp_path: Path) -> None:
    texts = [graphs.product(128, 128 * size, 128) for size in (1, 2, 3)]
    (cost,) = report(graphs.run(tmp_path / "run", *texts), most=2).tpu or ()
    assert len(cost.graphs) == 2
    (note,) = [note for note in cost.notes if "1 of 3 graphs" in note]
    assert "its device time is without those" in note


def test_a_sharded_graph_is_not_taken_for_that_of_one_core(tmp_path: Path) -> None:
    text = graphs.product(256, 256, 256)
    for sharding, error in (("{devices=[2,1]0,1}", True), ("{replicated}", False)):
        name = "sharded" if error else "replicated"
        run = graphs.run(
            tmp_path / name, text.replace("parameter(0)", f"parameter(0), sharding={sharding}")
        )
        (cost,) = report(run).tpu or ()
        assert (cost.graphs[0].error is not None) is error
        assert (cost.step.device_seconds is None) is error


def test_a_sharded_graph_is_divided_among_the_devices_that_it_was_recorded_on(
    tmp_path: Path,
) -> None:
    text = graphs.product(4096, 4096, 4096)
    held = {}
    for cores, sharding in ((1, "{replicated}"), (8, "{devices=[8,1]0,1,2,3,4,5,6,7}")):
        divided = text.replace("parameter(0)", f"parameter(0), sharding={sharding}")
        (cost,) = report(graphs.run(tmp_path / str(cores), divided, cores=cores), "v5e-8").tpu or ()
        assert cost.graphs[0].error is None
        held[cores] = cost.step.device_seconds
    # One core does an eighth of the product.
    assert held[8] < held[1] / 4
    small = report(graphs.run(tmp_path / "small", divided, cores=8), "v5e-4").tpu or ()
    assert "take a larger slice" in (small[0].graphs[0].error or "")


def test_a_slice_that_is_too_small_for_the_collectives_is_told(tmp_path: Path) -> None:
    text = graphs.reductions(2).replace("replica_groups={}", "replica_groups={{0,1,2,3,4,5,6,7}}")
    (cost,) = report(graphs.run(tmp_path / "run", text, cores=8), "v5p-8").tpu or ()
    assert cost.graphs[0].error is not None
    assert "take a larger slice" in cost.graphs[0].error
