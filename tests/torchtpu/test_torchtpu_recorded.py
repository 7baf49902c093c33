"""What is said of runs of TorchTPU: recorded with torch_tpu 0.2.0 on a PJRT plug-in for CPUs.

The programs are those of ``programs``; paths were changed, nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from xladoctor.diagnosis.diagnose import diagnose
from xladoctor.readings.sources import load
from xladoctor.report import terminal

RECORDED = Path(__file__).parent / "recorded"


def reported(name):
    return diagnose(load([RECORDED / name]))


def test_what_was_compiled_again_is_the_last_batch():
    report = reported("short_last_batch")
    found = {item.code: item for item in report.findings}
    assert (found["XLA203"].locations[0].row, found["XLA203"].count) == (14, 13)
    assert {item.step for item in report.compilations if item.after_warmup} == {11}
    assert report.summary.compilations == 28
    assert (report.summary.host_syncs, report.summary.steps) == (22, 22)
    assert sum(report.summary.fallbacks.values()) == 22
    assert found["XLA501"].locations[0].row == 28
    assert report.about["Compilation cache"] == "440 requests, 412 hits, 28 compilations"
    assert "torch_tpu 0.2.0" in report.about["Versions"]


def test_it_is_told_in_the_words_of_torchtpu():
    for name in ("short_last_batch", "deferred"):
        for item in reported(name).findings:
            told = f"{item.message} {item.suggestion}"
            assert "xm." not in told, told
            assert "torch_xla" not in told, told
            assert "--detail high" not in told, told


def test_several_steps_between_two_waits_are_told_as_such():
    report = reported("deferred")
    late = [item for item in report.compilations if item.after_warmup]
    assert {item.step for item in late} == {12}
    assert {item.cause.detail for item in late} == {
        "of one of the steps 9 to 12, between which the host did not wait"
    }


@pytest.mark.parametrize(("name", "rows"), [("short_last_batch", 2), ("deferred", 2)])
def test_operations_of_one_step_and_reason_are_one_row(name, rows):
    report = reported(name)
    text = terminal.render(report, width=120)
    table = text.partition("Compilations\n")[2].partition("About this report")[0]
    assert sum(" in " in line and "eager mode" in line for line in table.splitlines()) == rows
