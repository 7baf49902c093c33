"""Diagnoses of runs. The runs are invented; tests of real ones stand with the profiler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.invented import FILE, InventedRun
from xladoctor.diagnosis import diagnose
from xladoctor.diagnosis.process_chain import followers, shifted
from xladoctor.findings import Finding, Location, Severity
from xladoctor.readings import load
from xladoctor.readings.tables import CoreRow, ProcessRow, StepRow
from xladoctor.results import to_json

if TYPE_CHECKING:
    from xladoctor.results import Report


SAMPLES = Path(__file__).resolve().parents[2] / "sample_runs"


def report(run: InventedRun, tmp_path: Path, **options: Any) -> Report:
    run.end()
    return diagnose(load([run.write(tmp_path / "run")]), **options)


def codes(result: Report) -> list[str]:
    return [finding.code for finding in result.findings]


def healthy(cores: int = 2) -> InventedRun:
    """Twenty good steps: two graphs in warm-up, a read each ten steps."""
    run = InventedRun(cores)
    for core in range(cores):
        for step in range(1, 21):
            run.step(core, step, syncs=[(52, "item", 1, 0.01, 0)] if step % 10 == 0 else None)
        run.compilation(core, 1, graph="a")
        run.compilation(core, 2, graph="b")
    return run


def test_a_healthy_run_is_called_sound_and_says_why(tmp_path: Path) -> None:
    result = report(healthy(), tmp_path)
    assert result.findings == ()
    assert result.summary.verdict.startswith("Nothing is wrong on the XLA side; how busy a real")
    assert "2 compilations in 20 steps, 0 after warm-up" in result.summary.why


def test_a_run_of_a_few_steps_is_too_early_to_tell(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(4)
    assert report(run, tmp_path).summary.verdict == "It is too early to tell."


def test_counts_follow_the_contract(tmp_path: Path) -> None:
    run = InventedRun(2)
    run.steps(8, syncs=[(52, "item", 3, 0.2, 0)], fallbacks=[(44, "aten::bincount", 2, 0.1)],
              host_sync=0.6, fallback=0.2)  # fmt: skip
    for core in (0, 1):
        run.compilation(core, 1, graph="a", executions=0, seconds=2.0 if core == 0 else None)
        run.compilation(core, 3, graph="b", executions=2, seconds=1.0)
    run.compilation(1, 8, graph="c", executions=3)  # the fourth execution of its point
    summary = report(run, tmp_path).summary
    assert (summary.cores, summary.steps) == (2, 8)
    assert (summary.compilations, summary.compilations_after_warmup) == (3, 1)
    assert summary.host_syncs == 48
    assert summary.fallbacks == {"aten::bincount": 32}
    time = to_json(report_again := report(healthy(), tmp_path / "other"))["summary"]["seconds"]
    assert report_again.summary.seconds.total == pytest.approx(10.0)
    assert sum(v for k, v in time.items() if k != "total") == pytest.approx(time["total"])
    assert summary.seconds.host_sync == pytest.approx(8 * 0.6)


def test_one_graph_is_one_entry_with_all_its_cores(tmp_path: Path) -> None:
    run = InventedRun(3)
    run.steps(6)
    for core in range(3):
        run.compilation(core, 1, graph="a", seconds=2.0 if core == 0 else None, reused=core > 0)
        run.compilation(core, 2)  # the hash is not known
    first, second = report(run, tmp_path).compilations
    assert (first.cores, first.seconds, first.graph) == ((0, 1, 2), 2.0, "a")
    assert second.cores == (0, 1, 2)


@pytest.mark.parametrize(("sizes", "codes"), [(1, []), (5, ["XLA210"])])
def test_exchanged_sizes_are_counted_and_told_when_there_are_many(
    tmp_path: Path, sizes: int, codes: list[str]
) -> None:
    """An invented record: what simulated cores exchange in memory is a graph on a real device."""
    run = InventedRun(2)
    run.steps(12)
    for core in range(2):
        for size in range(sizes):
            run.compilation(
                core, 5 + size, graph=f"rendezvous [{size}]", seconds=None, reused=True,
                modelled=True, cause={"kind": "input-shape", "detail": f"bytes that the cores "
                                      f"exchange: {size} -> {size + 1}", "site": None},
            )  # fmt: skip
    result = report(run, tmp_path)
    assert [found.code for found in result.findings] == codes
    assert result.summary.compilations == sizes
    assert [item.modelled for item in result.compilations] == [True] * sizes
    assert len([note for note in result.notes if "exchange in memory" in note]) == 1


def test_a_read_in_every_step_names_line_count_cores_and_cost(tmp_path: Path) -> None:
    run = InventedRun(2)
    run.steps(10, syncs=[(52, "item", 1, 0.2, 0)], host_sync=0.2)
    (found,) = report(run, tmp_path).findings
    assert (found.code, found.count, found.cores) == ("XLA101", 20, (0, 1))
    assert (found.locations[0].filename, found.locations[0].row) == ("train.py", 52)
    assert found.seconds == pytest.approx(2.0)  # per core
    assert "once per step on all 2 cores, 20 times in all" in found.message


def test_reads_after_the_last_step_hold_up_no_step(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(10)
    for core in range(2):
        run.step(core, None, None, syncs=[(70, "cpu", 50, 0.2, 0)])
    result = report(run, tmp_path)
    assert result.findings == ()
    assert result.summary.host_syncs == 100


def test_a_fallback_in_the_steps_is_found_and_one_of_set_up_is_not(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(10, fallbacks=[(44, "aten::bincount", 1, 0.1)])
    run.rows.append(
        {**next(r for r in run.rows if r["e"] == "step"), "syncs": [],
         "fallbacks": [[run.site(12), "aten::randperm", 1, 0.1]]}
    )  # fmt: skip
    (found,) = report(run, tmp_path).findings
    assert (found.code, found.count, found.locations[0].row) == ("XLA501", 20, 44)
    assert "torch.arange(classes" in found.suggestion


SMALLER = {
    "kind": "input-shape",
    "detail": "x: f32[16,24] -> f32[10,24]; y: s64[16] -> s64[10]",
    "site": None,
}


def test_the_smaller_last_batch_is_one_problem_on_all_its_lines(tmp_path: Path) -> None:
    run = healthy()
    for core in range(2):
        for line in (40, 52):
            run.compilation(core, 20, line=line, graph=f"last{line}", executions=19, cause=SMALLER)
    (found,) = report(run, tmp_path).findings
    assert found.code == "XLA203"
    assert [place.row for place in found.locations] == [40]
    assert [(place.row, place.note) for place in found.related] == [(52, "the graph ends here")]
    assert found.seconds == pytest.approx(3.0)


def test_what_the_step_of_the_last_batch_compiles_besides_belongs_to_it(tmp_path: Path) -> None:
    run = healthy()
    unknown = {"kind": "unknown", "detail": "", "site": None}
    for core in range(2):
        run.compilation(core, 20, line=52, graph="last", executions=19, cause=SMALLER)
        run.compilation(core, 20, line=40, graph="optimizer", executions=19, cause=unknown)
    (found,) = report(run, tmp_path).findings
    assert found.code == "XLA203"
    run = healthy()
    run.compilation(0, 20, line=52, graph="last", executions=19, cause=SMALLER)
    run.compilation(0, 12, line=40, graph="other", executions=11, cause=unknown)
    assert codes(report(run, tmp_path / "other")) == ["XLA203", "XLA210"]


def test_a_line_that_meets_other_sizes_too_belongs_to_the_last_batch_in_its_step(
    tmp_path: Path,
) -> None:
    run = healthy()
    for core in range(2):
        run.compilation(core, 20, line=52, graph="last", executions=19, cause=SMALLER)
        run.compilation(core, 20, line=40, graph="labels", executions=19, cause=SMALLER)
        for step in (5, 7, 9):
            wide = {"kind": "input-shape", "detail": f"x: f32[4] -> f32[{step}]", "site": None}
            run.compilation(core, step, line=40, graph=f"w{step}", executions=step, cause=wide)
    found = {f.code: f for f in report(run, tmp_path).findings}
    assert [p.row for p in (*found["XLA203"].locations, *found["XLA203"].related)] == [52, 40]
    assert found["XLA210"].count == 2 * 3


def test_an_input_that_became_a_number_is_no_smaller_batch(tmp_path: Path) -> None:
    run = InventedRun(cores=1)
    run.steps(12)
    cause = {"kind": "input-shape", "detail": "input 18: s64[512] -> s64[]", "site": None}
    run.compilation(0, 10, cause=cause)
    assert codes(report(run, tmp_path)) == ["XLA210"]


def test_many_sizes_are_recompilation_and_not_a_last_batch(tmp_path: Path) -> None:
    run = healthy()
    for core in range(2):
        for step in range(5, 15):
            cause = {
                "kind": "input-shape",
                "detail": f"x: f32[8,64] -> f32[8,{step}]",
                "site": None,
            }
            run.compilation(core, step, graph=f"g{step}", cause=cause)
    (found,) = report(run, tmp_path).findings
    assert (found.code, found.count) == ("XLA210", 20)
    assert (
        "10 new graphs compiled after warm-up in 15.0 s: an input changed its shape"
        in found.message
    )


def test_what_shrinks_without_a_name_where_the_size_depends_on_data_is_no_batch(
    tmp_path: Path,
) -> None:
    run = InventedRun()
    run.steps(12, fallbacks=[(40, "aten::nonzero", 1, 0.01, 0.005)])
    shrunk = {"kind": "input-shape", "detail": "input 0: s64[4,1] -> s64[2,1]", "site": None}
    for core in range(2):
        run.compilation(core, 9, graph="two", executions=8, cause=shrunk)
    assert codes(report(run, tmp_path)) == ["XLA201", "XLA501"]


def test_an_unexplained_graph_where_a_data_dependent_operation_ran(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(10, fallbacks=[(40, "aten::nonzero", 1, 0.1)])
    run.compilation(0, 8, cause={"kind": "unknown", "detail": "", "site": None})
    found = next(f for f in report(run, tmp_path).findings if f.code == "XLA201")
    assert "aten::nonzero gives here depends on the data" in found.message


def test_a_graph_that_grows_has_no_step_boundary(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(10)
    for core in range(2):
        for step in range(2, 8):
            run.compilation(core, step, graph=f"g{step}",
                            cause={"kind": "graph-grew", "detail": "", "site": None})  # fmt: skip
    # Invented steps end at this line: then what is kept over steps makes the graph grow.
    result = report(run, tmp_path)
    assert codes(result) == ["XLA210"]
    assert "detach()" in result.findings[0].suggestion
    for row in run.rows:
        for launch in row.get("launches", ()):
            launch[1] = "read"
    result = report(run, tmp_path / "reads")
    assert codes(result) == ["XLA301"]
    assert result.findings[0].severity is Severity.ERROR


def test_a_graph_that_grows_once_in_each_of_several_launches_has_its_step_boundary(
    tmp_path: Path,
) -> None:
    run = InventedRun()
    run.steps(10)
    for core in range(2):
        for step in (2, 3) if core == 0 else (2,):
            run.compilation(core, step, graph=f"grown{step}", line=41, executions=1,
                            cause={"kind": "graph-grew", "detail": "", "site": None})  # fmt: skip
    run.end()
    path = run.write(tmp_path / "run")
    events = (path / "p5-1" / "events.jsonl").read_text()
    for launch in (6, 7):  # the same once more, with graphs of its own
        (path / f"p{launch}-1").mkdir()
        text = events.replace("grown", f"grown-{launch}-").replace('"pid": 5', f'"pid": {launch}')
        (path / f"p{launch}-1" / "events.jsonl").write_text(text)
    assert "XLA301" not in codes(diagnose(load([path])))


def test_cores_with_a_graph_of_their_own(tmp_path: Path) -> None:
    run = healthy(4)
    run.compilation(
        2,
        12,
        graph="own",
        executions=1,
        cause={"kind": "core-divergence", "detail": "", "site": None},
    )
    result = report(run, tmp_path)
    assert codes(result) == ["XLA410"]
    assert result.findings[0].cores == (2,)


def test_a_read_on_one_core_only_is_no_divergence(tmp_path: Path) -> None:
    run = healthy(4)
    run.compilation(0, 12, graph="own", trigger="read", executions=1)
    assert codes(report(run, tmp_path)) == []


def test_a_divergence_that_the_simulation_stopped(tmp_path: Path) -> None:
    run = healthy(2)
    run.rows.append(
        {
            "e": "divergence",
            "t": 9.0,
            "core": 1,
            "message": "xladoctor: core 1 builds another graph",
        }
    )
    result = report(run, tmp_path)
    assert codes(result) == ["XLA410"]
    assert result.findings[0].message == "core 1 builds another graph"


def test_a_divergence_is_shown_at_the_line_that_makes_it(tmp_path: Path) -> None:
    run = healthy(2)
    run.rows.append(
        {"e": "divergence", "t": 9.0, "message": "xladoctor: core 1 builds another graph",
         "cores": [1], "step": 7, "site": run.site(40), "cause_site": run.site(33)}
    )  # fmt: skip
    [found] = report(run, tmp_path).findings
    assert found.message == "core 1 builds another graph (step 7)"
    assert [place.row for place in found.locations] == [33]
    assert found.cores == (1,)


def test_cores_whose_weights_part(tmp_path: Path) -> None:
    run = healthy(2)
    run.rows.append(
        {"e": "weights-diverge", "t": 9.0, "message": "cores 0 and 1 train other models",
         "cores": [0, 1], "suggestion": "reduce first", "step": 1, "equal_at": 0, "cause": "lost",
         "site": run.site(40), "cause_site": run.site(33)}
    )  # fmt: skip
    [found] = report(run, tmp_path).findings
    assert (found.code, found.severity.value) == ("XLA412", "error")
    assert found.suggestion == "reduce first"
    assert [place.row for place in found.locations] == [33]
    assert [place.row for place in found.related] == [40]
    assert found.cores == (0, 1)


def test_a_failed_core_comes_first_and_its_consequences_not_at_all(tmp_path: Path) -> None:
    run = healthy(2)
    run.rows += [
        {"e": "error", "core": 0, "step": 7, "type": "BrokenBarrierError", "message": "",
         "traceback": "", "site": run.site(40)},
        {"e": "error", "core": 1, "step": 7, "type": "ValueError", "message": "bad label\nmore",
         "traceback": "", "site": run.site(33)},
    ]  # fmt: skip
    result = report(run, tmp_path)
    assert codes(result) == ["XLA411"]
    assert result.findings[0].message == "core 1 failed in step 7: ValueError: bad label"
    assert result.summary.verdict.startswith("The run failed")
    assert result.summary.why.startswith("train.py:33: ")
    assert "what the other cores report" in result.summary.next


def test_where_all_cores_failed_no_other_core_has_consequences(tmp_path: Path) -> None:
    run = healthy(2)
    run.rows += [
        {"e": "error", "core": core, "step": 7, "type": "ValueError", "message": "bad label",
         "traceback": "", "site": run.site(33)}
        for core in range(2)
    ]  # fmt: skip
    (found,) = report(run, tmp_path).findings
    assert (found.cores, found.suggestion) == ((0, 1), "fix this first")


def test_a_hang_names_who_stands_where(tmp_path: Path) -> None:
    run = healthy(3)
    for core, line in ((0, 40), (1, 40), (2, 61)):
        run.rows.append(
            {"e": "hang", "core": core, "t": 9.0, "site": run.site(line), "state": "hang"}
        )
    (found,) = report(run, tmp_path).findings
    assert found.code == "XLA413"
    assert found.locations[0].row == 61
    assert "core 2 at train.py:61 (hang); cores 0, 1 at train.py:40" in found.message


def test_what_goes_wrong_in_a_joined_run_has_the_numbers_that_its_cores_have_there(
    tmp_path: Path,
) -> None:
    """The second run's cores 0 and 1 are cores 2 and 3 of both."""
    runs = []
    for name in ("one", "two"):
        run = healthy(2)
        if name == "two":
            run.rows += [
                {"e": "error", "core": 1, "step": 7, "type": "ValueError", "message": "bad label",
                 "traceback": "", "site": run.site(33)},
                {"e": "hang", "core": 0, "t": 9.0, "site": run.site(61), "state": "hang",
                 "waits_for": "core 1"},
                {"e": "divergence", "t": 9.0, "message": "xladoctor: core 1 builds another graph",
                 "cores": [1], "step": 7, "site": run.site(40), "cause_site": run.site(34)},
                {"e": "weights-diverge", "t": 9.0, "message": "cores 0 and 1 train other models",
                 "cores": [0, 1], "step": 1, "site": run.site(40), "cause_site": run.site(35)},
            ]  # fmt: skip
        run.end()
        runs.append(run.write(tmp_path / name))
    found = {f.code: f for f in diagnose(load(runs)).findings}
    assert {code: f.cores for code, f in found.items()} == {
        "XLA411": (3,), "XLA413": (2,), "XLA410": (3,), "XLA412": (2, 3),
    }  # fmt: skip
    assert found["XLA411"].message.startswith("core 3 failed in step 7")
    own = f"(as numbered in {runs[1]})"
    assert f"core 2 at train.py:61 (core 1 {own})" in found["XLA413"].message
    assert found["XLA410"].message == f"core 1 builds another graph {own} (step 7)"
    assert found["XLA412"].message == f"cores 0 and 1 train other models {own}"


def test_launches_one_after_the_other_are_the_same_cores(tmp_path: Path) -> None:
    def process(name: str, began: float, ended: float | None, steps: int) -> list[CoreRow]:
        return [CoreRow(name, core, began + core, ended, steps) for core in (0, 1)]

    first, second = process("a", 0.0, 9.0, 3), process("b", 10.0, 19.0, 4)
    beside, unended = process("c", 5.0, 30.0, 2), process("d", 31.0, None, 1)
    rows = [*first, *second, *beside, *unended]
    assert followers(rows) == {"b": "a", "d": "c"}
    assert followers([*first, *process("e", 8.9, 20.0, 1)]) == {}
    assert followers(unended + process("f", 99.0, 100.0, 1)) == {}
    lives = [ProcessRow("a", since=0.0, until=11.0), ProcessRow("b", since=9.0, until=20.0)]
    assert followers([*first, *second], lives) == {}
    # A parent has waited while what it launched ran, and then has steps of its own.
    parent = [ProcessRow("a", 7, since=-2.0, until=9.5, parent=8),
              ProcessRow("b", 8, since=-3.0, until=20.0)]  # fmt: skip
    assert followers([*first, *second], parent) == {"b": "a"}
    moved = shifted(StepRow("b", 0, 1, 2, 0.0, 1.0, {}), 3)
    assert (moved.first, moved.last) == (4, 5)


def test_cores_are_numbered_as_their_processes_started(tmp_path: Path) -> None:
    """As text p10001 comes before p9998; two that live at the same time are two cores."""
    for process, steps in (("p9998-1", 3), ("p10001-2", 5), ("p12-3", 7)):
        run = InventedRun(1)
        run.steps(steps)
        run.end()
        written = run.write(tmp_path / process)
        (written / "p5-1").rename(tmp_path / "p9998-1" / process)
    result = diagnose(load([tmp_path / "p9998-1"]))
    assert [core.steps for core in result.cores] == [3, 5, 7]


def standing(run: InventedRun, state: str, cores: dict[int, tuple[int | None, str | None, int]]):
    """Rows of a deadlock: core to line (None if it has ended), what it waits for, steps."""
    for core, (line, waits_for, steps) in cores.items():
        run.rows.append(
            {"e": "hang", "core": core, "t": 9.0, "site": None if line is None else run.site(line),
             "state": state if line else "has ended", "waits_for": waits_for,
             "for_cores": [2] if waits_for else None, "steps": steps}
        )  # fmt: skip
    return run


def test_a_hang_names_for_whom_the_cores_wait(tmp_path: Path) -> None:
    waits = (40, "rendezvous 'save'", 10)
    run = standing(healthy(3), "hang", {0: waits, 1: waits, 2: (61, None, 10)})
    (found,) = report(run, tmp_path).findings
    assert (found.code, found.locations[0].row, found.cores) == ("XLA413", 61, (0, 1, 2))
    assert found.message == (
        "the run hung: core 2 at train.py:61 (hang); "
        "cores 0, 1 at train.py:40 (rendezvous 'save', waiting for core 2)"
    )


def test_a_core_that_left_early_and_one_that_skips_a_collective(tmp_path: Path) -> None:
    waits = (40, "a graph with all_reduce", 11)
    early = standing(healthy(3), "core-left", {0: waits, 1: waits, 2: (None, None, 10)})
    (found,) = report(early, tmp_path / "early").findings
    assert (found.code, found.locations[0].row) == ("XLA420", 40)
    assert "core 2 returned after 10 steps" in found.message
    # As many steps on both sides: it is the collective that the others do not reach.
    only = standing(healthy(3), "core-left", {0: waits, 1: waits, 2: (None, None, 11)})
    assert codes(report(only, tmp_path / "only")) == ["XLA405"]
    differ = {0: waits, 1: waits, 2: (61, "rendezvous 'save'", 11)}
    (found,) = report(standing(healthy(3), "cores-differ", differ), tmp_path / "differ").findings
    assert (found.code, found.locations[0].row) == ("XLA405", 61)


def test_tags_that_differ_are_a_collective_that_not_all_reach(tmp_path: Path) -> None:
    run = healthy(2)
    run.rows.append(
        {"e": "divergence", "kind": "tags", "t": 9.0, "message": "xladoctor: two tags",
         "cores": [1], "step": 10, "site": run.site(40), "cause_site": run.site(61)}
    )  # fmt: skip
    (found,) = report(run, tmp_path).findings
    assert (found.code, found.severity.value, found.cores) == ("XLA405", "error", (1,))
    assert (found.locations[0].row, found.related[0].row) == (61, 40)


def test_waiting_for_input_counts_after_warm_up_only(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(10, input_wait=0.5)
    (found,) = report(run, tmp_path).findings
    assert found.code == "XLA601"
    assert "50% of the time after warm-up (3.5 s per core)" in found.message
    slow_start = InventedRun()
    for core in range(2):
        for step in range(1, 11):
            slow_start.step(core, step, input_wait=60.0 if step == 1 else 0.01)
    assert codes(report(slow_start, tmp_path / "other")) == []
    new_workers = InventedRun()
    for core in range(2):
        for step in range(1, 21):
            new_workers.step(core, step, input_wait=60.0 if step == 11 else 0.01)
    (found,) = report(new_workers, tmp_path / "third").findings
    assert "nearly all of it in 1 step of a core" in found.message
    assert "persistent_workers" in found.suggestion


def test_a_loader_that_is_too_slow_is_waited_for_once_in_the_batches_taken_together(
    tmp_path: Path,
) -> None:
    run = InventedRun(1)
    made, loop = run.site(12), run.site(30)
    run.compilation(0, 1, fed={"made": made, "loop": loop, "batch": 1, "batches": 40})
    for step in range(1, 41):
        run.step(0, step, input_wait=2.0 if step % 8 == 1 else 0.0)
    found = next(one for one in report(run, tmp_path).findings if one.code == "XLA601")
    assert "nearly all" not in found.message
    assert found.suggestion.startswith("give the data loader more workers")
    assert [place.row for place in (*found.locations, *found.related)] == [12, 30]


def test_a_long_compilation_that_executions_do_not_outweigh(tmp_path: Path) -> None:
    run = healthy()
    run.compilation(0, 1, graph="huge", executions=0, seconds=100.0)
    assert codes(report(run, tmp_path)) == ["XLA211"]


def test_a_long_compilation_that_another_finding_counts_is_not_paid_for_twice(
    tmp_path: Path,
) -> None:
    run = healthy()
    run.compilation(0, 1, graph="huge", executions=0, seconds=100.0)
    for core in range(2):
        run.compilation(core, 20, graph="last", executions=19, cause=SMALLER, seconds=300.0)
    found = {f.code: f for f in report(run, tmp_path).findings}
    assert (found["XLA203"].seconds, found["XLA211"].seconds) == (300.0, 100.0)
    assert "2 compilations took a minute or more" in found["XLA211"].message
    run = healthy()
    for core in range(2):
        run.compilation(core, 20, graph="last", executions=19, cause=SMALLER, seconds=300.0)
    found = {f.code: f for f in report(run, tmp_path / "other").findings}
    assert found["XLA211"].seconds is None


RECORDED = sorted(path.parent for path in SAMPLES.glob("*/recorded/*/manifest.json"))


@pytest.mark.parametrize("folder", RECORDED, ids=lambda path: path.relative_to(SAMPLES).as_posix())
def test_what_the_findings_cost_together_is_no_more_than_the_run(folder: Path) -> None:
    result = diagnose(load([folder]))
    assert result.summary.seconds.total is not None
    cost = sum(found.seconds or 0.0 for found in result.findings)
    assert cost <= result.summary.seconds.total


def _evaluating(batches: int, *, trains_too: bool = False) -> InventedRun:
    """Twenty steps and three evaluations: line 70 reads in every batch of the loader of line 68."""
    run = healthy(cores=1)
    loader, end = run.site(68), run.site(69)
    for _ in range(3):
        run.step(0, None)  # what comes before an evaluation
        run.rows[-1]["launches"] = [[end, "step", 1, 0.1]] if trains_too else []
        run.step(0, None, syncs=[(70, "item", batches, 0.1, 0)])
        run.rows[-1]["launches"] = [[loader, "loader", batches, 0.1]]
    return run


def test_a_read_in_every_batch_of_an_evaluation_loop_is_found(tmp_path: Path) -> None:
    run = _evaluating(4)
    for row in run.rows:  # the steps end in another function than the evaluation
        if row["e"] == "site" and row["frames"][0][1] == 40:
            row["frames"][0][2] = "train_epoch"
    (found,) = report(run, tmp_path).findings
    assert (found.code, found.count, found.locations[0].row) == ("XLA101", 12, 70)
    assert "once per batch of the evaluation loop" in found.message
    assert "after the loop" in found.suggestion


@pytest.mark.parametrize(("batches", "trains_too"), [(1, False), (4, True)])
def test_a_read_at_the_end_of_an_evaluation_or_beside_the_steps_is_not(
    tmp_path: Path, batches: int, trains_too: bool
) -> None:
    assert codes(report(_evaluating(batches, trains_too=trains_too), tmp_path)) == []


def test_reads_and_fallbacks_are_told_by_line_and_core(tmp_path: Path) -> None:
    run = InventedRun(cores=1)
    kinds = {"compiled": 1, "cut": 2, "waited": 0, "free": 3}
    for step in range(1, 4):
        run.step(
            0, step, syncs=[(52, "item", 6, 0.3, 1, kinds)],
            fallbacks=[(60, "aten::nonzero", 2, 0.5, 0.1)], fallback=0.5,
        )  # fmt: skip
    data = to_json(report(run, tmp_path))
    assert data["reads"] == [
        {"location": {"filename": "train.py", "row": 52, "function": "train"}, "what": "item",
         "core": 0, "count": 18, "seconds": pytest.approx(0.9), "compiled": 3, "cut": 6,
         "waited": 0, "free": 9},
    ]  # fmt: skip
    (fallback,) = data["fallbacks"]
    assert (fallback["operation"], fallback["count"]) == ("aten::nonzero", 6)
    assert (fallback["seconds"], fallback["fetch_seconds"]) == pytest.approx((1.5, 0.3))
    (found,) = [f for f in data["findings"] if f["code"] == "XLA501"]
    assert "blocked each core for 1.5 s, 300 ms of it to fetch the inputs" in found["message"]


def test_what_other_holds_is_named_where_it_was_recorded(tmp_path: Path) -> None:
    run = InventedRun(cores=2)
    run.steps(8)
    for row in run.rows:
        if row["e"] == "step":
            row["parts"] |= {"core_wait": 2.0, "transfer": 0.25, "other": 0.125}
            row["t1"] += 2.375
    summary = to_json(report(run, tmp_path))["summary"]
    assert summary["seconds"]["other"] == pytest.approx(8 * 2.375)
    assert summary["within_other"] == pytest.approx({"core_wait": 16.0, "transfer": 2.0})
    parts = [value for part, value in summary["seconds"].items() if part != "total"]
    assert sum(parts) == pytest.approx(summary["seconds"]["total"])


def test_a_graph_says_what_ended_it(tmp_path: Path) -> None:
    run = InventedRun(cores=1)
    run.steps(8)
    run.compilation(0, 1, trigger="step")
    hook = [["/env/lib/python3.11/site-packages/lightning/strategies/xla.py", 9, "optimizer_step"]]
    run.rows.append({"e": "site", "id": 900, "frames": [*hook, [FILE, 12, "main"]]})
    run.compilation(0, 2, trigger="step")
    run.rows[-1]["site"] = 900
    own, hooked = to_json(report(run, tmp_path))["compilations"]
    assert (own["trigger"], own["via"]) == ("step", None)
    assert (hooked["trigger"], hooked["via"]) == ("step", "lightning.optimizer_step")
    assert hooked["location"]["row"] == 12


def test_a_command_that_did_not_finish_is_not_called_sound(tmp_path: Path) -> None:
    run = healthy()
    assert run.manifest is not None
    run.manifest |= {"exit_code": 137, "signal": "SIGKILL", "complete": False}
    result = report(run, tmp_path)
    assert result.summary.verdict == (
        "The run ended early: the command was killed (out of memory?)."
    )
    run.manifest |= {"exit_code": 143, "signal": "SIGTERM"}
    result = report(run, tmp_path / "ended")
    assert result.summary.verdict == "The command did not finish: it ended with SIGTERM."


def test_what_was_slow_does_not_hide_that_the_command_failed(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(10, syncs=[(52, "item", 1, 0.01, 0)])
    assert run.manifest is not None
    run.manifest |= {"exit_code": 1}
    result = report(run, tmp_path)
    assert codes(result) == ["XLA101"]
    assert result.summary.verdict.endswith(" The command ended with exit code 1.")


def test_a_killed_process_comes_before_what_its_parent_says_of_it(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(3, syncs=[(50, "item", 1, 0.1, 0)])
    run.rows.append(
        {"e": "error", "core": 0, "step": 4, "type": "BrokenProcessPool", "message": "terminated",
         "traceback": "", "site": None}
    )  # fmt: skip
    assert run.manifest is not None
    run.manifest |= {"exit_code": 1, "complete": False}
    # The process's own last row never came.
    result = diagnose(load([str(run.write(tmp_path / "run"))]))
    summary = result.summary
    who = "process 5 (all 2 cores) ended without a word"
    assert summary.verdict.startswith(f"The run ended early: {who} (killed, by SIGKILL or SIGTERM?")
    [found] = [item for item in result.findings if item.code == "XLA411"]
    assert found.message.startswith(f"{who} after step 3")
    assert "3 optimizer steps" in summary.why


def test_what_reads_were_is_said_in_words(tmp_path: Path) -> None:
    run = InventedRun()
    kinds = {"compiled": 0, "cut": 0, "waited": 1, "free": 0}
    run.steps(10, syncs=[(50, "item", 1, 0.1, 0, kinds)])
    run.step(0, None, None, syncs=[(50, "item", 1, 0.1, 0, kinds | {"free": 1, "waited": 0})])
    (found,) = report(run, tmp_path).findings
    assert "(20 waited for the device, 1 found the value ready)" in found.message
    # The last iteration of the loop falls after the last step; it counts all the same.
    assert found.count == 21


def test_what_no_core_measured_is_null_and_said(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(6)
    for row in run.rows:
        if row["e"] == "step":
            row["t1"] -= row["parts"].pop("trace")
    result = report(run, tmp_path)
    assert result.summary.seconds.trace is None
    assert "Not measured: time spent in trace." in result.notes


def test_the_parent_that_only_waits_is_no_core_of_its_own(tmp_path: Path) -> None:
    path = healthy().write(tmp_path / "run")
    folder = path / "p1-1"
    folder.mkdir()
    parent = InventedRun(1)
    parent.step(0, None, None, execute=500.0)
    other = parent.write(tmp_path / "parent")
    (folder / "events.jsonl").write_text((other / "p5-1" / "events.jsonl").read_text())
    summary = diagnose(load([path])).summary
    assert summary.cores == 2
    assert summary.seconds.total == pytest.approx(10.0)


def test_what_the_linter_says_is_joined(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(10, syncs=[(52, "item", 1, 0.2, 0)])
    static = Finding(
        "XLA102", "scalar-cast-in-step", Severity.WARNING, "float() of a tensor",
        locations=(Location("train.py", 52, 9, 52, 20),), confirmed_by=("lint",),
    )  # fmt: skip
    (found,) = report(run, tmp_path, static_findings=[static]).findings
    assert found.code == "XLA102"
    assert found.count == 20
    assert found.confirmed_by == ("runtime", "lint")


def test_what_only_the_linter_says_does_not_make_a_sound_run_unsound(tmp_path: Path) -> None:
    static = Finding("XLA802", "deprecated-api", Severity.WARNING, "old", confirmed_by=("lint",))
    result = report(healthy(), tmp_path, static_findings=[static])
    assert codes(result) == ["XLA802"]
    assert result.summary.verdict.startswith("Nothing is wrong on the XLA side")
    assert result.summary.verdict.endswith("1 finding below.")


def test_two_run_directories_are_the_cores_of_one_run(tmp_path: Path) -> None:
    paths = [healthy(1).write(tmp_path / name) for name in ("a", "b")]
    result = diagnose(load(paths))
    assert [core.core for core in result.cores] == [0, 1]
    assert result.summary.compilations == 2


def test_reads_of_a_loop_between_the_epochs_are_not_told_as_one_of_each_step(
    tmp_path: Path,
) -> None:
    """Twelve steps; before steps 4, 7 and 10 an evaluation reads in each of its batches."""
    run = InventedRun(cores=1)
    for step in range(1, 13):
        run.step(0, step, syncs=[(70, "item", 5, 0.1, 0)] if step in (4, 7, 10) else [])
    (found,) = report(run, tmp_path).findings
    assert "is read (item) 5 times in a row between two steps" in found.message
    assert "after the loop" in found.suggestion


def test_fallbacks_of_an_evaluation_are_not_told_as_some_of_each_step(tmp_path: Path) -> None:
    run = InventedRun(cores=1)
    for step in range(1, 13):
        run.step(0, step, fallbacks=[(70, "aten::nonzero", 6, 0.1)] if step in (4, 8) else [])
    (found,) = report(run, tmp_path).findings
    assert "runs on the CPU 6 times in a row between two steps on core 0, 12 times in" in (
        found.message
    )


def test_the_first_step_after_an_evaluation_says_so(tmp_path: Path) -> None:
    """FSDP keeps the weights gathered that an evaluation has used: another graph, once."""
    run = InventedRun(cores=1)
    test = run.site(70)
    run.rows[-1]["frames"][0][2] = "test"
    for step in range(1, 13):
        run.step(0, step)
        if step == 9:
            run.rows[-1]["launches"] += [[test, "loader", 8, 0.1]]
    run.compilation(
        0, 9, executions=8, seconds=5.0, graph="other",
        cause={"kind": "op-changed", "detail": "41 fewer operations", "site": run.site(33)},
    )  # fmt: skip
    found = next(one for one in report(run, tmp_path).findings if one.code == "XLA210")
    assert "41 fewer operations, in the first step after an evaluation" in found.message
    assert "what the evaluation leaves behind" in found.suggestion
    assert "the evaluation before this step" in [place.note for place in found.related]


def eager_run(operations: int) -> InventedRun:
    """Twelve steps on one core, in which eager mode has run so many operations."""
    run = InventedRun(cores=1)
    for step in range(1, 13):
        run.step(0, step)
        run.rows[-1]["launches"] = [[run.rows[-1]["launches"][0][0], "eager", 1, 0.1]]
    run.metrics = (
        "Metric: EagerOpExecuteTime\n"
        f"  TotalSamples: {operations}\n"
        "  Accumulator: 01s002ms\n"
        "  Percentiles: 1%=001ms; 50%=001ms; 99%=002ms\n"
    )
    return run


def test_steps_in_eager_mode_are_told_with_their_operations(tmp_path: Path) -> None:
    (found,) = report(eager_run(7200), tmp_path).findings
    assert (found.code, found.severity.value, found.locations[0].row) == ("XLA714", "warning", 40)
    assert "by itself, 600 of them per step (7,200 in all)" in found.message


@pytest.mark.parametrize(("operations", "told"), [(7200, True), (24, False)])
def test_the_run_decides_what_the_linter_says_of_eager_mode(
    tmp_path: Path, operations: int, told: bool
) -> None:
    said = Finding(
        "XLA714", "debug-environment", Severity.WARNING, "eager mode compiles and runs all",
        locations=(Location("train.py", 9, 1),), confirmed_by=("lint",),
    )  # fmt: skip
    found = report(eager_run(operations), tmp_path, static_findings=[said]).findings
    assert len(found) == told
    if told:
        assert found[0].confirmed_by == ("runtime", "lint")
        assert [place.row for place in (*found[0].locations, *found[0].related)] == [9, 40]
