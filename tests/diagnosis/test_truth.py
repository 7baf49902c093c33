"""One truth: the line to change, the verdict, the order of findings. The runs are invented."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.invented import InventedRun
from xladoctor import catalogue
from xladoctor.capture import rundir
from xladoctor.diagnosis import diagnose
from xladoctor.diagnosis.ranking import cause_of, ranked
from xladoctor.findings import Finding, Location, Severity
from xladoctor.readings import load
from xladoctor.report import render
from xladoctor.results import to_json

if TYPE_CHECKING:
    from pathlib import Path

    from xladoctor.results import Report

SMALLER = {"kind": "input-shape", "detail": "x: f32[16,24] -> f32[10,24]", "site": None}
FORMATS = ("full", "concise", "json", "markdown", "html", "sarif", "github", "junit")


def settled(cores: int = 2, *, device: str = "TPU", steps: int = 40, **parts: float) -> InventedRun:
    """A run on real devices that compiles once and then takes steps of one kind."""
    run = InventedRun(cores, simulated_cores=None)
    run.rows[0] |= {"simulated_cores": None, "device": device}
    run.steps(steps, **parts)
    for core in range(cores):
        run.compilation(core, 1, graph="a", seconds=0.1)
    return run


def report(run: InventedRun, path: Path, **options: Any) -> Report:
    run.end()
    return diagnose(load([run.write(path / "run")]), **options)


def lint(code: str, row: int, severity: Severity = Severity.WARNING, **more: Any) -> Finding:
    return Finding(
        code, "rule", severity, "says the linter", "write this",
        (Location("train.py", row, 5, row, 20),), confirmed_by=("lint",), **more,
    )  # fmt: skip


# -- the line to change ---------------------------------------------------------------------------
def test_a_recompilation_stands_at_the_line_that_makes_the_tensor_in_every_format(
    tmp_path: Path,
) -> None:
    run = settled()
    for core in range(2):
        for step in range(5, 12):
            cause = {"kind": "constant-changed", "detail": f"{step}", "site": run.site(26)}
            run.compilation(core, step, graph=f"g{step}", line=40, cause=cause)
    result = report(run, tmp_path)
    (found,) = result.findings
    assert [place.row for place in found.locations] == [26]
    assert [(place.row, place.note) for place in found.related] == [(40, "the graph ends here")]
    element = to_json(result)["findings"][0]
    assert [place["row"] for place in element["locations"]] == [26]
    assert element["related"] == [
        {"filename": "train.py", "row": 40, "function": "train", "message": "the graph ends here"}
    ]
    for form in FORMATS:
        text = render(result, form)
        assert "the graph ends here" in " ".join(text.split()), form


def test_the_linters_reason_for_new_graphs_joins_at_that_line(tmp_path: Path) -> None:
    run = settled()
    for step in range(5, 12):
        cause = {"kind": "constant-changed", "detail": f"{step}", "site": run.site(26)}
        run.compilation(0, step, graph=f"g{step}", line=40, cause=cause)
    static = lint("XLA205", 26)
    (found,) = report(run, tmp_path, static_findings=[static]).findings
    assert (found.code, found.locations[0].row, found.locations[0].column) == ("XLA205", 26, 5)
    assert found.confirmed_by == ("runtime", "lint")
    assert found.count == 7
    assert (40, "the graph ends here") in [(place.row, place.note) for place in found.related]


def fed(run: InventedRun, batch: int, batches: int | None = 14) -> dict[str, Any]:
    return {"made": run.site(12), "loop": run.site(30), "batch": batch, "batches": batches,
            "over": False}  # fmt: skip


def test_a_short_last_batch_stands_where_its_loader_is_made(tmp_path: Path) -> None:
    run = settled()
    for core in range(2):
        run.compilation(core, 14, line=40, graph="last", executions=13, cause=SMALLER,
                        fed=fed(run, 14))  # fmt: skip
    (found,) = report(run, tmp_path, static_findings=[lint("XLA203", 12)]).findings
    assert (found.code, found.confirmed_by) == ("XLA203", ("runtime", "lint"))
    assert found.locations[0].row == 12
    assert [(place.row, place.note) for place in found.related] == [
        (30, "the loop over it"), (40, "the graph ends here"),
    ]  # fmt: skip


@pytest.mark.parametrize("batch", [None, 5])
def test_no_loader_and_no_last_batch_is_blamed_for_another_size(
    tmp_path: Path, batch: int | None
) -> None:
    run = settled()
    for core in range(2):
        run.compilation(core, 14, line=40, graph="other", executions=13, cause=SMALLER,
                        fed=None if batch is None else fed(run, batch))  # fmt: skip
    (found,) = report(run, tmp_path).findings
    assert found.code == "XLA210"


def test_what_feeds_the_loop_is_the_line_where_batches_are_unequal(tmp_path: Path) -> None:
    run = settled(3)
    for core, batch in ((0, 11), (1, 11), (2, 10)):
        left = core == 2
        run.rows.append(
            {"e": "hang", "core": core, "t": 9.0, "site": None if left else run.site(40),
             "state": "has ended" if left else "core-left", "for_cores": None if left else [2],
             "waits_for": None if left else "a graph with all_reduce", "steps": batch,
             "fed": {**fed(run, batch), "over": left}}
        )  # fmt: skip
    (found,) = report(run, tmp_path).findings
    assert (found.code, found.locations[0].row) == ("XLA420", 12)
    assert [place.row for place in found.related] == [30, 40]
    assert "core 2 got 10, cores 0, 1 got 11 batches" in found.message


# -- steps that no graph end separates ------------------------------------------------------------
@pytest.mark.parametrize(
    ("held", "code"),
    [((36, "read"), "XLA301"), ((5, "end"), "XLA301"), ((4, "read"), None), ((2, "step"), None),
     ((12, "sync"), "XLA301")],
)  # fmt: skip
def test_dozens_of_optimizer_steps_in_one_graph(
    tmp_path: Path, held: tuple[int, str], code: str | None
) -> None:
    run = settled()
    site = run.site(35)
    run.rows.insert(1, run.rows.pop())  # written before the first row that names it
    steps = [row for row in run.rows if row["e"] == "step"]
    steps[-1]["held"] = [held[0], site, held[1]]
    found = report(run, tmp_path).findings
    assert [item.code for item in found] == ([] if code is None else [code])
    for item in found:
        assert item.locations[0].row == 35
        assert f"{held[0]} steps of the optimizer went into one graph" in item.message


# -- the verdict ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("parts", "words"),
    [({"execute": 0.5}, "is sound"), ({"execute": 0.1, "trace": 0.4}, "80% of the time was Python"),
     ({"execute": 0.3, "input_wait": 0.1, "other": 0.5}, "not be told apart")],
)  # fmt: skip
def test_a_run_is_sound_only_if_the_device_was_at_work(
    tmp_path: Path, parts: dict[str, float], words: str
) -> None:
    summary = report(settled(**parts), tmp_path).summary
    assert words in summary.verdict
    assert ("sound" in summary.verdict) == (words == "is sound")


def test_the_cpu_says_that_it_cannot_know(tmp_path: Path) -> None:
    verdict = report(settled(device="CPU", trace=0.6), tmp_path).summary.verdict
    assert "was Python and tracing; how busy a real device would be cannot be told" in verdict


def test_waiting_for_input_in_a_few_long_steps_is_told_all_the_same(tmp_path: Path) -> None:
    run = settled(1, execute=0.1)
    for row in run.rows:
        if row.get("first") in (11, 21, 31):
            row["parts"]["input_wait"] = 2.0
            row["t1"] += 2.0
    (found,) = report(run, tmp_path).findings
    assert found.code == "XLA601"
    assert "nearly all of it in 3 steps" in found.message
    assert "persistent_workers" in found.suggestion


def late(run: InventedRun, count: int, seconds: float) -> InventedRun:
    for core in range(run.cores):
        for number in range(count):
            run.compilation(
                core, 20 + number, graph=f"late{number}", seconds=seconds,
                cause={"kind": "op-changed", "detail": "", "site": run.site(33)},
            )  # fmt: skip
    return run


def test_one_late_graph_is_no_habit_and_counts_by_what_it_cost(tmp_path: Path) -> None:
    cheap = report(late(settled(), 1, 0.042), tmp_path / "cheap")
    assert [found.severity for found in cheap.findings] == [Severity.INFO]
    assert "is sound" in cheap.summary.verdict
    assert "1 finding below" in cheap.summary.verdict
    costly = report(late(settled(), 1, 4.0), tmp_path / "costly")
    assert costly.summary.verdict.startswith("One graph was compiled late: 20% of the time")
    often = report(late(settled(), 9, 0.042), tmp_path / "often")
    assert often.summary.verdict.startswith("The program keeps recompiling")


def test_a_constructor_that_ends_many_graphs_at_one_line_has_warmed_up_nothing(
    tmp_path: Path,
) -> None:
    run = settled()
    for core in range(2):
        run.compilation(core, 1, graph="bucket", line=16, executions=4, trigger="library",
                        cause={"kind": "op-changed", "detail": "", "site": None})  # fmt: skip
    result = report(run, tmp_path)
    assert result.findings == ()
    assert result.summary.compilations_after_warmup == 0


def test_the_number_of_further_findings_is_that_of_the_list(tmp_path: Path) -> None:
    run = settled(syncs=[(52, "item", 1, 0.01, 0)], host_sync=0.01)
    static = [lint("XLA802", 3), lint("XLA604", 9, Severity.INFO)]
    result = report(run, tmp_path, static_findings=static)
    assert len(result.findings) == 3
    assert "2 more findings below" in result.summary.verdict


# -- profile and report ---------------------------------------------------------------------------
def test_a_report_made_later_has_the_findings_that_the_linter_had(tmp_path: Path) -> None:
    run = settled(syncs=[(52, "item", 1, 0.01, 0)], host_sync=0.01)
    run.end()
    path = run.write(tmp_path / "run")
    static = [lint("XLA102", 52), lint("XLA802", 3)]
    rundir.write_lint(path, static)
    later = diagnose(load([path]))
    (path / "lint.json").unlink()
    at_once = diagnose(load([path]), static_findings=static)
    assert later.findings == at_once.findings
    assert [note for note in at_once.notes if "without the linter" in note]
    assert not [note for note in later.notes if "without the linter" in note]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", "[{}]", "null", '[{"code": 3}]', "[" * 100_000,
     json.dumps([{"code": "XLA1", "name": "n", "severity": "error", "message": "m",
                  "suggestion": "", "locations": [], "related": [], "cores": [],
                  "confirmed_by": [], "fix": None}])],
)  # fmt: skip
def test_what_is_no_record_of_the_linter_is_left_out_and_said(tmp_path: Path, text: str) -> None:
    run = settled()
    run.end()
    path = run.write(tmp_path / "run")
    (path / "lint.json").write_text(text)
    result = diagnose(load([path]))
    assert result.findings == ()
    assert [note for note in result.notes if note.startswith("lint.json cannot be read")] or (
        text == "{}"
    )


# -- order ----------------------------------------------------------------------------------------
def measured(code: str, severity: Severity, row: int, **more: Any) -> Finding:
    return Finding(code, "rule", severity, "seen", "do that", (Location("train.py", row),),
                   confirmed_by=("runtime",), **more)  # fmt: skip


def test_a_cause_stands_above_what_it_causes() -> None:
    differ = measured("XLA410", Severity.ERROR, 40)
    part = measured("XLA412", Severity.ERROR, 41)
    slow = measured("XLA101", Severity.WARNING, 50, seconds=9.0)
    alone, clip = lint("XLA418", 67), lint("XLA303", 70, Severity.ERROR)
    other = lint("XLA403", 5, Severity.ERROR)
    order = ranked([slow, other, alone, differ, clip, part], checked=True)
    assert order == [alone, differ, clip, part, slow, other]
    assert cause_of(differ, order) is alone
    failed = measured("XLA411", Severity.ERROR, 12)
    here, elsewhere = lint("XLA801", 12), lint("XLA802", 99)
    assert ranked([elsewhere, failed, here]) == [here, failed, elsewhere]


def test_the_table_of_causes_names_rules_that_there_are() -> None:
    codes = set(catalogue.pages())
    for row in catalogue.table("causes")["cause"]:
        assert row["where"] in ("line", "anywhere")
        assert row["why"]
        assert set(row["symptoms"]) <= codes
        for beginning in row["codes"]:
            assert any(code.startswith(beginning) for code in codes)
            assert beginning not in row["symptoms"]


def test_the_verdict_names_the_cause_and_what_to_do_about_it(tmp_path: Path) -> None:
    run = settled()
    run.rows.append(
        {"e": "divergence", "t": 9.0, "message": "xladoctor: core 0 builds another graph",
         "cores": [0], "step": 7, "site": run.site(40), "cause_site": run.site(33)}
    )  # fmt: skip
    result = report(run, tmp_path, static_findings=[lint("XLA418", 67)])
    assert [found.code for found in result.findings] == ["XLA418", "XLA410"]
    assert result.summary.verdict.startswith("The cores build different graphs")
    assert "Likely cause: train.py:67: says the linter (XLA418)" in result.summary.why
    assert result.summary.next == "Write this."


def test_another_measure_of_cost_makes_another_order() -> None:
    one = measured("XLA101", Severity.WARNING, 3, seconds=9.0)
    other = measured("XLA501", Severity.WARNING, 4, seconds=1.0)
    assert ranked([one, other]) == [one, other]
    assert ranked([one, other], lambda found: {"XLA501": 5.0}.get(found.code)) == [other, one]


def test_reads_that_this_run_did_not_come_to_are_last_and_marked(tmp_path: Path) -> None:
    run = settled(syncs=[(52, "item", 1, 0.01, 0)], host_sync=0.01)
    static = [lint("XLA102", 88, Severity.ERROR), lint("XLA802", 3), lint("XLA101", 52)]
    result = report(run, tmp_path, static_findings=static)
    assert [(found.code, found.ran) for found in result.findings] == [
        ("XLA101", True), ("XLA802", None), ("XLA102", False),
    ]  # fmt: skip
    assert "not seen in this run" in render(result, "full")
    assert to_json(result)["findings"][2]["ran"] is False


# -- long runs ------------------------------------------------------------------------------------
def test_a_slow_step_does_not_vanish_in_a_block_of_ten(tmp_path: Path) -> None:
    run = InventedRun(1)
    run.steps(10)
    run.step(0, 11, 20, execute=2.0)
    run.rows[-1] |= {"fastest": 0.1, "slowest": 1.1}
    result = report(run, tmp_path)
    (core,) = result.cores
    assert core.step_seconds_max == pytest.approx(1.1)
    assert core.step_seconds_min == pytest.approx(0.1)
    assert sum(result.steps[0][10:]) == pytest.approx(2.0)
    assert len(result.steps[0]) == 20
    assert "from 100 ms to 1.1 s" in render(result, "full")


# -- cores that differ ----------------------------------------------------------------------------
def differing(run: InventedRun, **facts: Any) -> InventedRun:
    """A row as the simulation writes it."""
    run.rows.append(
        {"e": "divergence", "t": 9.0, "kind": "graphs", "message": "xladoctor: they differ",
         "stopped": True, "step": 7, "site": run.site(41), "cause_site": run.site(40), **facts}
    )  # fmt: skip
    return run


def extra(operation: str, place: str | None = "train.py:40", **more: Any) -> dict[str, Any]:
    return {"operation": operation, "shape": "f32[]", "value": None, "count": 1, "place": place,
            **more}  # fmt: skip


def test_who_differs_and_in_what(tmp_path: Path) -> None:
    added = [extra("aten::softmax"), extra("aten::max"), extra("aten::mul"), extra("aten::expand")]
    run = differing(settled(8), what="operations", cores=[0], groups=[[1, 2, 3, 4, 5, 6, 7], [0]],
                    differs=[[], added])  # fmt: skip
    (found,) = report(run, tmp_path).findings
    assert found.message == (
        "core 0 builds another graph than cores 1-7: core 0 adds softmax, max, mul (train.py:40) "
        "(step 7)"
    )
    assert (found.code, found.cores, found.locations[0].row) == ("XLA410", (0,), 40)
    assert [(place.row, place.note) for place in found.related] == [(41, "the cores meet here")]


def test_batches_of_other_lengths_are_told_by_their_shapes(tmp_path: Path) -> None:
    """Behind an input of another shape all operations differ, on both sides alike."""
    run = differing(
        settled(2), what="shapes", cores=[], groups=[[0], [1]], stopped=False,
        difference="s64[16,23] on core 0, s64[16,24] on core 1: pad to one length on all cores",
        differs=[[extra("aten::add")], [extra("aten::add")]],
    )  # fmt: skip
    found = next(one for one in report(run, tmp_path).findings if one.code == "XLA410")
    assert "s64[16,23] on core 0, s64[16,24] on core 1: pad to one length" in found.message
    assert "adds" not in found.message
    assert "pad to a fixed length" in found.suggestion


def test_a_number_that_differs_from_core_to_core(tmp_path: Path) -> None:
    run = differing(
        settled(4), what="constants", cores=[], groups=[[0], [1], [2, 3]],
        differs=[[extra("prim::Constant", value="0")], [extra("prim::Constant", value="1")],
                 [extra("xla::device_data")]],
    )  # fmt: skip
    (found,) = report(run, tmp_path).findings
    assert found.message.startswith("cores 0-3 build 3 different graphs: a number is 0 on core 0, ")
    assert "1 on core 1, another number, as an input, on cores 2, 3 (train.py:40)" in found.message


def test_shares_of_one_tensor_are_by_design(tmp_path: Path) -> None:
    run = differing(settled(2), what="shares", groups=[[0], [1]], cores=[], differs=[[], []])
    assert report(run, tmp_path).findings == ()


def test_a_line_of_an_installed_package_is_no_line_to_change(tmp_path: Path) -> None:
    run = settled(2)
    inside = run.site(87, "/usr/lib/python3/site-packages/torch_xla/torch_xla.py")
    differing(run, site=inside, cause_site=run.site(40))
    (found,) = report(run, tmp_path).findings
    places = (*found.locations, *found.related)
    assert [(place.filename, place.row) for place in places] == [("train.py", 40), ("train.py", 99)]


# -- launches one after the other -----------------------------------------------------------------
@pytest.mark.parametrize("launches", [1, 2])
def test_iterations_of_earlier_launches_are_no_steps_of_the_training(
    tmp_path: Path, launches: int
) -> None:
    training = settled(1, steps=10)
    training.end()
    path = training.write(tmp_path / "run")
    for number in range(launches):
        earlier = looked_at_its_device(-9.0 * (number + 1)).write(tmp_path / f"other{number}")
        (earlier / "p5-1").rename(path / f"p4-{number}")
    result = diagnose(load([path]))
    assert result.summary.steps == 10
    assert not [note for note in result.notes if "No optimizer has stepped" in note]


def looked_at_its_device(began: float) -> InventedRun:
    """A launch of one iteration and no optimizer, from ``began`` to four seconds later."""
    looking = InventedRun(1)
    looking.rows[0] |= {"pid": 4, "t": began, "time": 1.0, "since": began}
    looking.step(0, None, None)
    looking.rows[-1] |= {
        "iterations": 1, "t0": began + 1, "t1": began + 2, "first": None, "last": None,
    }  # fmt: skip
    for row in looking.rows:
        if row["e"] == "core-start":
            row["t"] = began + 0.5
    looking.rows += [
        {"e": "core-end", "core": 0, "t": began + 3, "steps": 0, "iterations": 1, "failed": False},
        {"e": "end", "t": began + 4},
    ]
    return looking
