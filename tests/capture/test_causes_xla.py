"""Real runs: why each graph was new is what the programs are known to do."""

from __future__ import annotations

import os
import sys

import cause_programs
import programs
import pytest
from test_profile_xla import ROOT, profile

from xladoctor import diagnosis, readings
from xladoctor.findings import Severity

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla


def line(mark: str) -> int:
    return programs.line(cause_programs.REASONS, mark)


def _report(folder, text, *words, **environ):
    (folder / "train.py").write_text(text)
    words = (*words, "-o", "run", "--output-file", "r.txt", "--", sys.executable, "train.py")
    done = profile(folder, *words, **environ)
    assert done.returncode == 0, done.stderr
    return diagnosis.diagnose(readings.load([folder / "run"]))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return _report(tmp_path_factory.mktemp("reasons"), cause_programs.REASONS, PJRT_DEVICE="CPU")


def _graphs(report, mark):
    """The graphs that ended at a line, after its first."""
    found = [c for c in report.compilations if c.location and c.location.row == line(mark)]
    assert found[0].cause.kind in ("first-graph", "host-sync-split")
    return found[1:]


@pytest.mark.parametrize(
    ("mark", "kind", "made", "words"),
    [
        ("LAST_BATCH", "input-shape", "LAST_BATCH_MADE", "(x): f32[8,6] -> f32[3,6]"),
        ("SEQUENCE", "input-shape", None, "(ids): s64[4,9] -> s64[4,12]"),
        ("SLICE", "constant-changed", "SLICE_MADE", "[0:8, 0:1] -> [0:8, 0:2] (step: 0 -> 1)"),
        ("ARANGE", "constant-changed", "ARANGE_MADE", "s64[2] -> s64[3] (step: 0 -> 1)"),
        ("NUMBER", "constant-changed", "NUMBER_MADE", "exactly 1 (scale: 0.5 -> 1.0)"),
        ("MASK", "input-shape", "MASK_MADE", "s64[4,1] -> s64[6,1]"),
        ("KEPT", "graph-grew", None, "; total keeps the history of the steps before"),
        ("LIVE", "live-tensors-changed", "LIVE_MADE", "when the graph ended (kept: f32[8,2])"),
        ("TYPE", "input-shape", None, "(x): f32[4,6] -> f16[4,6]"),
        ("BRANCH", "op-changed", "BRANCH_MADE", "aten::sigmoid"),
    ],
)
def test_what_differs_from_the_nearest_earlier_graph(report, mark, kind, made, words):
    causes = [item.cause for item in _graphs(report, mark)]
    assert causes, "no further graph was compiled"
    found = next((cause for cause in causes if cause.kind == kind and words in cause.detail), None)
    assert found is not None, causes
    if made is not None:
        assert found.location is not None
        assert found.location.row == line(made)


def test_a_read_in_the_step_is_a_graph_of_its_own(report):
    for mark, step_end in (("SPLIT_READ", "SPLIT"), ("PRINT", "PRINT_STEP")):
        at = [c for c in report.compilations if c.location.row == line(mark)]
        assert [item.cause.kind for item in at] == ["host-sync-split"]
        # The step's own graph is not compiled again for it.
        assert not _graphs(report, step_end)


def test_no_graph_is_left_without_a_reason(report):
    assert [c for c in report.compilations if c.cause.kind == "unknown"] == []


def test_train_and_eval_in_turn_are_no_fault(report):
    places = {place.row for found in report.findings for place in found.locations}
    assert places.isdisjoint({line("TRAIN"), line("EVAL")})
    for mark in ("TRAIN", "EVAL"):
        assert len(_graphs(report, mark)) <= 1  # the first step's gradients are made, then kept


def ending_at(report, code, row):
    """The one finding of a code (or family) whose graph ends at a line, wherever it stands."""
    (found,) = [
        one
        for one in report.findings
        if one.code.startswith(code)
        and row in {place.row for place in (*one.locations, *one.related)}
    ]
    return found


def test_findings_name_the_problem_and_the_line_that_makes_it(report):
    # No loader feeds this loop: the line that makes the shorter tensor is what there is to change.
    smaller = ending_at(report, "XLA210", line("LAST_BATCH"))
    assert smaller.locations[0].row == line("LAST_BATCH_MADE")
    assert not [f for f in report.findings if f.code == "XLA203"]
    # The run sees a shape that changes with the data, the linter that a mask makes it: one finding.
    masked = ending_at(report, "XLA20", line("MASK"))
    assert (masked.code, masked.confirmed_by) == ("XLA202", ("runtime", "lint"))
    assert masked.locations[0].row == line("MASK_MADE")
    grown = ending_at(report, "XLA210", line("KEPT"))
    assert "detach()" in grown.suggestion
    assert not [f for f in report.findings if f.code == "XLA301"]
    sliced = ending_at(report, "XLA2", line("SLICE"))
    assert (sliced.code, sliced.confirmed_by) == ("XLA205", ("runtime", "lint"))
    assert sliced.locations[0].row == line("SLICE_MADE")
    assert "the graph ends here" in {place.note for place in sliced.related}
    assert sliced.count == 4  # 7 sizes, 3 executions are warm-up
    assert "changed its type" in ending_at(report, "XLA210", line("TYPE")).message


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    return _report(tmp_path_factory.mktemp("hidden"), cause_programs.HIDDEN, PJRT_DEVICE="CPU")


def hidden_line(mark: str) -> int:
    return programs.line(cause_programs.HIDDEN, mark)


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("OWN_BACKWARD", "exactly 1"),
        ("DROPPED", "exactly 1 (scale: 0.3 -> 1.0)"),
        ("RATE", "exactly -1 (a number of the optimizer"),
        ("POWER", "aten::pow: 3 -> 4 (exponent: 4 -> 5)"),
        ("REPEAT", "aten::repeat: 4 parts -> 5 parts (step: 2 -> 3)"),
    ],
)
def test_numbers_that_only_the_backward_pass_uses_have_line_and_variable(hidden, mark, words):
    late = [
        item.cause
        for item in hidden.compilations
        if item.location.row == hidden_line(mark) and item.after_warmup
    ]
    (first, *_) = [cause for cause in late if words in cause.detail]
    assert first.kind == "constant-changed"
    assert first.location.row == hidden_line(f"{mark}_MADE")


def test_graphs_grow_with_operations_of_the_cpu_in_them(hidden):
    at_step_end = [c.cause for c in hidden.compilations if c.location.row == hidden_line("KEPT")]
    grew = [cause for cause in at_step_end if cause.kind == "graph-grew"]
    assert len(grew) >= 3
    assert all("total keeps the history" in cause.detail for cause in grew)
    assert "detach()" in ending_at(hidden, "XLA210", hidden_line("KEPT")).suggestion
    never = ending_at(hidden, "XLA301", hidden_line("NEVER_ENDED"))
    assert never.count >= 4
    # The same graphs are not told a second time as a program that keeps recompiling.
    again = {p.row for f in hidden.findings if f.code == "XLA210" for p in f.locations + f.related}
    assert hidden_line("NEVER_ENDED") not in again


def test_cores_that_differ(tmp_path):
    report = _report(tmp_path, cause_programs.UNLIKE, "--simulate-cores", "2")
    (odd,) = [c for c in report.compilations if c.cause.kind == "core-divergence"]
    assert odd.cores == (1,)
    assert "aten::sin" in odd.cause.detail
    assert odd.cause.location.row == programs.line(cause_programs.UNLIKE, "ODD")
    # Later steps are compared only while that is cheap; without a reduction these do part.
    errors = [
        found.code
        for found in report.findings
        if found.severity is Severity.ERROR and found.confirmed_by != ("lint",)
    ]
    # That they part is XLA412, or XLA302 where the linter has seen the line that steps alone.
    assert [code for code in errors if code not in ("XLA302", "XLA412")] == ["XLA410"]


#: Calls back with one, two and three rows; ``step`` is a variable of whoever holds this file.
LOOP = """
def run(call):
    for step in (1, 1, 3):
        call([0.5] * step)
"""
CALLED = """
import mine
import theirs
import torch
import torch_xla

device = torch_xla.device()
x = torch.ones(4, 4).to(device)


def short(rows):
    loss = (x[: len(rows)] * 2).sum()
    torch_xla.sync()  # line MINE


def shorter(rows):
    loss = (x[: len(rows)] * 3).exp().sum()
    torch_xla.sync()  # line THEIRS


mine.run(short)
theirs.run(shorter)
"""


def test_a_variable_of_an_installed_package_is_never_named(tmp_path):
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "theirs.py").write_text(LOOP)
    (tmp_path / "mine.py").write_text(LOOP)
    paths = os.pathsep.join([str(ROOT), str(tmp_path), str(installed)])
    report = _report(tmp_path, CALLED, PJRT_DEVICE="CPU", PYTHONPATH=paths)
    said = {
        mark: [
            one.cause.detail
            for one in report.compilations
            if one.location.row == programs.line(CALLED, mark) and one.cause.kind != "first-graph"
        ]
        for mark in ("MINE", "THEIRS")
    }
    assert "(run.step: 1 -> 3)" in " ".join(said["MINE"])
    assert said["THEIRS"]
    assert "step" not in " ".join(said["THEIRS"])
